//! What the Rust tests share: a store with faults, small tables, a way to read them back.
#![allow(dead_code)] // Each test binary uses its own part.

pub mod fault_store;
pub mod tables;
