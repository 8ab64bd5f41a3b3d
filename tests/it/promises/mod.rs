//! What holds for all locks alike: exclusion and order between processes, the bytes in ZooKeeper, what
//! a step costs, and that nothing is left behind.

mod budgets;
mod company;
mod leaks;
mod long_queues;
mod many_permits;
mod names;
mod periods;
mod processes;
mod tenures;
mod together;
