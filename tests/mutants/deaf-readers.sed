# rule: readers who keep their place with nobody inside hear of a writer
# file: src/local_queue/shared/release.rs
# sight: model readers
s/^            watch.state().redirect(Wake::Lock(lock));/            drop((watch, Wake::Lock(lock)));/
