# rule: no period begins that is smaller than one that was begun
# file: src/znode/job/rules.rs
# sight: cargo test --lib znode::job
s/        let clock = clock.max(greatest);/        if clock < greatest { return Ok((clock, 0)); }/
