//! One statement sees one state of a table.
//!
//! ```text
//! BEFORE   HashJoinExec                       AFTER   HashJoinExec
//!            MemWalScanExec (snapshot 7)                MemWalScanExec (snapshot 7)
//!            MemWalScanExec (snapshot 8)                MemWalScanExec (snapshot 7)
//! ```
//!
//! Each scan pins its snapshot while it is planned, and a write may come in between.
//! The oldest one wins: it is the state at which the statement began.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::exec::MemWalScanExec;
use crate::table::TableSnapshot;

/// Gives all scans of one table in one plan the oldest of their snapshots.
#[derive(Debug)]
pub(crate) struct PinSnapshotRule;

impl PinSnapshotRule {
    pub(crate) const NAME: &'static str = "memwal_pin_snapshot";
}

impl PhysicalOptimizerRule for PinSnapshotRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut oldest: HashMap<u64, TableSnapshot> = HashMap::new();
        let mut differ = false;
        plan.apply(|node| {
            if let Some(scan) = node.downcast_ref::<MemWalScanExec>() {
                let snapshot = scan.snapshot();
                match oldest.entry(snapshot.table_id()) {
                    Entry::Vacant(entry) => {
                        entry.insert(snapshot.clone());
                    }
                    Entry::Occupied(mut entry) => {
                        differ |= entry.get().id() != snapshot.id();
                        if snapshot.id() < entry.get().id() {
                            entry.insert(snapshot.clone());
                        }
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !differ {
            return Ok(plan);
        }
        plan.transform_down(|node| {
            let Some(scan) = node.downcast_ref::<MemWalScanExec>() else {
                return Ok(Transformed::no(node));
            };
            match oldest.get(&scan.snapshot().table_id()) {
                Some(snapshot) if snapshot.id() != scan.snapshot().id() => {
                    let pinned: Arc<dyn ExecutionPlan> = scan.with_snapshot(snapshot.clone());
                    Ok(Transformed::yes(pinned))
                }
                _ => Ok(Transformed::no(node)),
            }
        })
        .map(|pinned| pinned.data)
    }

    fn name(&self) -> &str {
        Self::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}
