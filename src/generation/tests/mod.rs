//! Generations on disk and in memory, with Lance as the referee.

mod damage;
mod files;
mod fixture;
mod interop;
mod scans;
