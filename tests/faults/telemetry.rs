//! What an operator's log shows of a writer: spans of its steps, events of its troubles,
//! each with shard, generation and log position.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::support::fault_store::{Fault, Faults, Request};
use super::support::tables::{create, open, rows, shared_uri};

const ON_DEMAND: (&str, &str) = ("flush_interval", "on_demand");

type Fields = BTreeMap<String, String>;

/// Names of spans, and the fields of events with those of the spans around them.
#[derive(Debug, Clone, Default)]
struct Seen {
    spans: Arc<Mutex<BTreeSet<String>>>,
    events: Arc<Mutex<Vec<Fields>>>,
}

struct Collect<'a>(&'a mut Fields);

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0
            .insert(field.name().to_string(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Collect(&mut fields));
        self.spans
            .lock()
            .insert(attributes.metadata().name().to_string());
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if !event.metadata().target().starts_with("datafusion_memwal") {
            return;
        }
        let mut fields = Fields::new();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.extend(of_span.clone());
            }
        }
        event.record(&mut Collect(&mut fields));
        self.events.lock().push(fields);
    }
}

impl Seen {
    /// The fields of the first event whose message has `part` in it.
    fn event(&self, part: &str) -> Fields {
        let events = self.events.lock();
        let found = events.iter().find(|fields| {
            fields
                .get("message")
                .is_some_and(|message| message.contains(part))
        });
        found
            .unwrap_or_else(|| panic!("no event says '{part}': {events:?}"))
            .clone()
    }
}

fn assert_located(event: &Fields) {
    for field in ["shard", "generation", "wal_position"] {
        assert!(event.contains_key(field), "{field} is missing: {event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_step_has_a_span_and_every_trouble_an_event() {
    let seen = Seen::default();
    let subscriber = tracing_subscriber::registry().with(seen.clone());
    let _guard = tracing::subscriber::set_default(subscriber);

    let (uri, faults) = (shared_uri(), Faults::new());
    let options = [
        ON_DEMAND,
        ("max_memtable_size", "16KiB"),
        ("max_unflushed_size", "24KiB"),
    ];
    let table = create(&uri, &faults, &options).await;
    faults.add(Request::Put, "/wal/", Fault::Fail, 1);
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    assert_located(&seen.event("WAL append is tried again"));
    table.flush().await.unwrap();
    table.put(vec![rows(&[(2, 2)])]).await.unwrap();

    let successor = open(&uri, &faults).await;
    assert!(table.put(vec![rows(&[(3, 3)])]).await.is_err());
    let fenced = seen.event("the writer ends");
    assert_located(&fenced);
    assert_eq!(fenced["kind"], "fenced");

    faults.add(Request::Put, "_gen_", Fault::Fail, usize::MAX);
    let many: Vec<_> = (0..150).map(|id| (id, id)).collect();
    while successor.put(vec![rows(&many)]).await.is_ok() {}
    assert_located(&seen.event("backpressure"));

    let steps = [
        "put",
        "wal_append",
        "index_apply",
        "freeze",
        "flush",
        "publish",
        "replay",
    ];
    let spans = seen.spans.lock();
    for step in steps {
        assert!(spans.contains(step), "no span '{step}' in {spans:?}");
    }
}
