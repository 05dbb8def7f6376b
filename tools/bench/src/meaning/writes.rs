//! Writes at a server that computes vectors, alternately with those at one that does not.

use std::fmt;

use keepsake_config::Failure;
use serde::Serialize;

use crate::costs::{Backends, embedded_passages};
use crate::growth::measure_once;
use crate::load::{self, Endpoint};
use crate::plan::{Layout, Scenario};
use crate::product::{Product, Served};
use crate::report::Compared;
use crate::workload::Side;
use crate::{BenchArgs, provision, say};

/// The variable that turns search by meaning on or off.
pub(super) const MEANING: &str = "KEEPSAKE_SEARCH_MEANING";
pub(super) const EMBEDDED: [(&str, &str); 1] = [(MEANING, "embedded")];
pub(super) const OFF: [(&str, &str); 1] = [(MEANING, "off")];
const SCENARIOS: [Scenario; 2] = [Scenario::Create, Scenario::StrReplace];
/// The least rate with search by meaning, as a share of that without it.
const BAR: f64 = 0.97;

/// The rates of writes with search by meaning and without it.
#[derive(Debug, Serialize)]
pub(super) struct Writes {
    bar: f64,
    costs: Vec<Compared>,
    /// Passages whose vectors were computed in the turns with it.
    passages: u64,
}

/// Starts a server for each turn: two servers cannot have the same file of SQLite.
///
/// The two sides have different stores. In the turns with search by meaning, a store gets
/// vectors when it is written to. The stores of the other side get vectors only when the job runs.
///
/// # Errors
/// [`Failure`] of the setup or of a call.
pub(super) async fn measure(args: &BenchArgs, product: &Product, run: &str) -> Result<Writes, Failure> {
    let shape = Layout::Spread.shape(args.sizes);
    let served = product.serve_with(&OFF).await?;
    let mut workloads = Vec::new();
    for side in ["with", "without"] {
        let tenants =
            provision::many_tenants(served.operator, shape.tenants, &format!("{run} {side}")).await?;
        let stores = provision::stores(&tenants, shape.stores_each, served.address).await?;
        let workload = args.workload(&stores, run, shape)?;
        say(&format!("making {} memories", shape.memories));
        load::seed(endpoint(&served), &workload, args.load()).await?;
        workloads.push(workload);
    }
    served.process.end().await?;
    let (mut costs, mut passages) = (Vec::new(), 0);
    for scenario in SCENARIOS {
        let mut seen = [Vec::new(), Vec::new()];
        for round in 0..args.rounds {
            let turns = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for turn in turns {
                let mut served = product.serve_with([&EMBEDDED, &OFF][turn]).await?;
                let endpoint = endpoint(&served);
                seen[turn].push(measure_once(endpoint, &workloads[turn], scenario, args.load()).await?);
                passages += embedded_passages(served.operator).await?;
                served.process.check()?;
                served.process.end().await?;
            }
            let name = scenario.name();
            say(&format!("{name} beside vectors, round {} of {}", round + 1, args.rounds));
        }
        costs.extend(Compared::of(scenario, &seen));
    }
    Ok(Writes { bar: BAR, costs, passages })
}

fn endpoint(served: &Served) -> Endpoint {
    Endpoint {
        side: Side::Server,
        address: served.address,
        pid: served.process.pid(),
        backends: Backends::default(),
        operator: None,
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.costs.iter().try_for_each(|cost| cost.line(f, "meaning", self.bar))?;
        writeln!(f, "{} passages got vectors meanwhile", self.passages)
    }
}
