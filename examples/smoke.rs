use std::time::*;
fn main() {
    env_logger::init();
    let t = Instant::now();
    let c = zklock::Client::connect(&std::env::args().nth(1).unwrap()).unwrap();
    println!("connected {:?} {:?}", t.elapsed(), c.session_timeout());
    let m = zklock::Mutex::new(&c, "/locks/a").unwrap();
    let g = m.lock().unwrap();
    println!("{g:?} {:?} {:?}", g.fencing_token(), m.participants());
    g.unlock().unwrap();
    for _ in 0..3 {
        let n = 3000;
        let t = Instant::now();
        for _ in 0..n {
            drop(m.lock().unwrap());
        }
        println!("cycle {:?}", t.elapsed() / n);
    }
    let g = m.lock().unwrap();
    let n = 1_000_000;
    let t = Instant::now();
    for _ in 0..n {
        drop(m.lock().unwrap());
    }
    println!("reentrant {:?}", t.elapsed() / n);
    drop(g);
    let l = zklock::Mutex::builder(&c, "/locks/l")
        .linger(Duration::from_secs(1))
        .build()
        .unwrap();
    drop(l.lock().unwrap());
    let t = Instant::now();
    for _ in 0..n {
        drop(l.lock().unwrap());
    }
    println!("linger {:?}", t.elapsed() / n);
    for threads in [1, 2, 8, 32] {
        let t = Instant::now();
        let per = 20000 / threads;
        std::thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| {
                    for _ in 0..per {
                        drop(m.lock().unwrap());
                    }
                });
            }
        });
        println!("{threads} threads {:?}", t.elapsed() / (per * threads));
    }
    let t = Instant::now();
    for _ in 0..1000 {
        drop(m.try_lock_for(Duration::from_secs(1)).unwrap().unwrap());
    }
    println!("timed {:?}", t.elapsed() / 1000);
    let t = Instant::now();
    c.close();
    println!("close {:?} {:?}", t.elapsed(), m.lock().unwrap_err());
}
