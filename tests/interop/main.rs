//! Lance's own MemWAL is the referee of our format: tables go from one writer to the other
//! and back, crashed or closed, and both must read the same rows through every access path.

mod fencing;
mod files;
mod kinds;
mod lance_side;
mod lance_to_ours;
mod options;
mod our_side;
mod ours_to_lance;
mod script;
