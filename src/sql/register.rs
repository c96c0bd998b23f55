//! Sets up a DataFusion session.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::{TableFunction, TableFunctionImpl, TableProviderFactory};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

use super::factory::MemWalTableFactory;
use super::functions::{MemWalFlushFunction, MemWalTiersFunction};
use super::rules::PinSnapshotRule;
use crate::session_options::SessionOptions;

/// Adds everything of this crate to a session.
pub trait MemWalSessionExt {
    /// Adds `STORED AS MEMWAL`, the table functions `memwal_tiers` and `memwal_flush`,
    /// the options `SET memwal.*` and the rule that gives a statement one snapshot.
    ///
    /// Call it last: `with_config` would put the session's options aside, and
    /// `with_physical_optimizer_rules` the rule. Calling it twice changes nothing.
    fn with_memwal(self) -> Self;
}

impl MemWalSessionExt for SessionStateBuilder {
    fn with_memwal(mut self) -> Self {
        let config = self.config().get_or_insert_default();
        if config
            .options()
            .extensions
            .get::<SessionOptions>()
            .is_none()
        {
            config
                .options_mut()
                .extensions
                .insert(SessionOptions::default());
        }

        let factory: Arc<dyn TableProviderFactory> = Arc::new(MemWalTableFactory::new());
        self.table_factories()
            .get_or_insert_default()
            .insert(MemWalTableFactory::FILE_TYPE.to_string(), factory);

        let functions: [(&str, Arc<dyn TableFunctionImpl>); 2] = [
            (MemWalTiersFunction::NAME, Arc::new(MemWalTiersFunction)),
            (MemWalFlushFunction::NAME, Arc::new(MemWalFlushFunction)),
        ];
        let known: &mut HashMap<_, _> = self.table_functions().get_or_insert_default();
        for (name, function) in functions {
            let function = TableFunction::new(name.to_string(), function);
            known.insert(name.to_string(), Arc::new(function));
        }

        // Analyzer rules (DELETE, UPDATE) will be added here as well.
        let optimizer = self
            .physical_optimizers()
            .get_or_insert_with(PhysicalOptimizer::new);
        if !optimizer
            .rules
            .iter()
            .any(|rule| rule.name() == PinSnapshotRule::NAME)
        {
            // First, while every scan still is where the planner put it.
            optimizer.rules.insert(0, Arc::new(PinSnapshotRule));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use super::*;

    #[test]
    fn the_rule_is_first_and_settings_survive() {
        let options = SessionOptions {
            key_index: false,
            ..SessionOptions::default()
        };
        let state = SessionStateBuilder::new()
            .with_config(SessionConfig::new().with_option_extension(options))
            .with_memwal()
            .with_default_features()
            .with_memwal()
            .build();
        let rules: Vec<&str> = state
            .physical_optimizers()
            .iter()
            .map(|rule| rule.name())
            .collect();
        assert_eq!(rules[0], PinSnapshotRule::NAME);
        assert_eq!(
            rules
                .iter()
                .filter(|name| **name == PinSnapshotRule::NAME)
                .count(),
            1
        );
        assert!(rules.len() > 10, "the default rules stay: {rules:?}");
        let options = state
            .config_options()
            .extensions
            .get::<SessionOptions>()
            .unwrap();
        assert!(!options.key_index);
        assert!(state.table_factories().contains_key("MEMWAL"));
        assert!(state.table_factories().contains_key("CSV"));
        assert!(state.table_functions().contains_key("memwal_flush"));
    }
}
