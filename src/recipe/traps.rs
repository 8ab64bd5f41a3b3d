//! Which ways of losing a guard the compiler sees: what the crate's page says under "Keep the
//! guard". Each stands here as two tests: it compiles without the lint, and does not under it.

macro_rules! traps {
    ($($name:ident, $lint:literal: $($trap:literal)*;)*) => {$(
        $(
            #[doc = concat!(
                "```compile_fail\n#![deny(", $lint, ")]\n",
                "fn f(lock: &zklock::Mutex, rw: &zklock::RwLock, some: &zklock::Semaphore)",
                " -> zklock::Result<()> {\n", $trap, "\nOk(())\n}\n```\n\n",
                "```\n#![allow(", $lint, ")]\n",
                "fn f(lock: &zklock::Mutex, rw: &zklock::RwLock, some: &zklock::Semaphore)",
                " -> zklock::Result<()> {\n", $trap, "\nOk(())\n}\n```\n",
            )]
        )*
        struct $name;
    )*};
}

traps! {
    // Without being asked.
    Always, "unused_must_use":
        "lock.lock();"
        "lock.lock()?;"
        "lock.try_lock();"
        "rw.read()?;"
        "rw.write()?;"
        "some.acquire()?;";
    // When asked to.
    NotBound, "let_underscore_drop":
        "let _ = lock.lock()?;"
        "let _ = lock.try_lock()?;"
        "let _ = rw.read()?;"
        "let _ = some.acquire()?;";
    NotUsed, "unused_results":
        "lock.try_lock()?;"
        "lock.try_lock_for(std::time::Duration::ZERO)?;"
        "some.try_acquire()?;";
}

/// Nothing sees this one, so the page must say it; if a compiler ever does, the page can say that.
///
/// ```
/// #![deny(warnings, let_underscore_drop, unused_results, unused_must_use)]
/// fn f(lock: &zklock::Mutex) -> zklock::Result<()> {
///     if lock.try_lock()?.is_some() {
///         println!("without the lock");
///     }
///     Ok(())
/// }
/// # let _main_is_made_around_this = f;
/// ```
struct Unseen;
