//! Ways to spread a model over devices, and what each can carry.

use std::collections::HashMap;
use std::sync::Arc;

use simulator::cost::calibrate::{Calibration, Subject};
use simulator::cost::closed_loop::{Estimate, Kind, Load};
use simulator::cost::{CostModel, Dispatch, Exposure, Hardware, Layout, Precision};

use super::models::NamedModel;
use super::running::{self, NoRoom, Room};
use super::slo::{Broken, Slo};
use crate::failure::Failure;

/// A model and the requests that it is to serve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand<'a> {
    pub(crate) model: &'a NamedModel,
    pub(crate) precision: Precision,
    pub(crate) kv_cache_dtype: &'a str,
    pub(crate) utilization: f64,
    pub(crate) input: f64,
    pub(crate) output: f64,
    pub(crate) calibration: &'a Calibration,
    /// Factors of the 90% intervals; 1 asks for the prediction itself.
    pub(crate) tpot_times: f64,
    pub(crate) ttft_times: f64,
}

/// One way to serve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) hardware: &'a Hardware,
    pub(crate) tensor_parallel: u32,
    pub(crate) expert_parallel: bool,
    pub(crate) chunk: f64,
    pub(crate) max_num_seqs: f64,
}

/// What bounds a way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Limit {
    /// KV memory: no more requests run.
    Memory,
    /// `max_num_seqs`.
    Seqs,
    /// A bound of the SLO.
    Slo(Broken),
}

impl Limit {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Seqs => "max-num-seqs",
            Self::Slo(Broken::Ttft) => "prefill (ttft)",
            Self::Slo(Broken::Tpot) => "step time (tpot)",
            Self::Slo(Broken::E2e) => "latency (e2e)",
        }
    }
}

/// What a way carries.
#[derive(Debug, Clone)]
pub(crate) struct Carried {
    /// Requests at once of one replica.
    pub(crate) concurrency: f64,
    pub(crate) estimate: Estimate,
    pub(crate) limit: Limit,
}

/// Why a way carries nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Nothing {
    Room(NoRoom),
    /// Even one request at a time breaks a bound; by how much the best is off.
    Slo(Broken, f64),
    /// It takes more devices than there are.
    Devices {
        needed: u64,
        most: u64,
    },
}

/// Limits of running requests that several ways share.
#[derive(Debug, Default)]
pub(crate) struct Rooms(HashMap<(String, u32), Result<Option<f64>, NoRoom>>);

impl Demand<'_> {
    fn cost(&self, way: &Way<'_>) -> Result<CostModel, Failure> {
        let subject = Subject {
            shape: Arc::clone(&self.model.shape),
            hardware: Arc::new(way.hardware.clone()),
            precision: self.precision,
            layout: Layout {
                tensor_parallel: way.tensor_parallel,
                expert_parallel: way.expert_parallel,
                early_fp8_experts: false,
            },
            dispatch: Dispatch::default(),
            exposure: Exposure::Overlapped,
        };
        subject.model(&self.calibration.offsets).map_err(|error| {
            Failure::new(format!("failed to cost `{}` on {}", self.model.name, way.hardware.name))
                .caused_by(error)
                .hint("give hardware whose figures are known, or calibrate it (`k3plan calibrate`)")
        })
    }

    fn load(&self, way: &Way<'_>, concurrency: f64, running: f64) -> Load {
        Load {
            kind: Kind::ClosedLoop,
            concurrency,
            input: self.input,
            output: self.output,
            // A long run: the first wave does not count.
            prompts: f64::MAX,
            running_at_most: running,
            chunk: way.chunk,
            drafts: 0.0,
            accepted: 1.0,
        }
    }

    fn room(&self, way: &Way<'_>, cost: &CostModel, rooms: &mut Rooms) -> Result<f64, NoRoom> {
        let key = (way.hardware.name.clone(), way.tensor_parallel);
        let found = rooms.0.entry(key).or_insert_with(|| {
            let room = Room {
                hardware: way.hardware,
                tensor_parallel: way.tensor_parallel,
                utilization: self.utilization,
                kv_cache_dtype: self.kv_cache_dtype,
                input: self.input,
                output: self.output,
            };
            running::at_once(self.model, cost, &room)
        });
        found.clone().map(|running| running.unwrap_or(f64::MAX))
    }

    /// The most requests at once that keep the SLO.
    ///
    /// # Errors
    /// If the device lacks a figure.
    pub(crate) fn carries(
        &self,
        way: &Way<'_>,
        slo: &Slo,
        rooms: &mut Rooms,
    ) -> Result<Result<Carried, Nothing>, Failure> {
        let cost = self.cost(way)?;
        let room = match self.room(way, &cost, rooms) {
            Ok(room) => room,
            Err(reason) => return Ok(Err(Nothing::Room(reason))),
        };
        let most = room.min(way.max_num_seqs).floor().max(1.0);
        let at = |concurrency: f64| cost.estimate(&self.load(way, concurrency, f64::MAX));
        let broken = |estimate: &Estimate| slo.broken(estimate, self.tpot_times, self.ttft_times);
        let one = at(1.0);
        if let Some(bound) = broken(&one) {
            let over = match bound {
                Broken::Ttft => one.ttft * self.ttft_times / slo.ttft.unwrap_or(1.0),
                Broken::Tpot => one.tpot * self.tpot_times / slo.tpot.unwrap_or(1.0),
                Broken::E2e => one.e2e / slo.e2e.unwrap_or(1.0),
            };
            return Ok(Err(Nothing::Slo(bound, over)));
        }
        // Times grow with the requests: halve the range until one request more breaks a bound.
        let (mut good, mut bad) = (1.0, most.min(65_536.0) + 1.0);
        while bad - good > 1.0 {
            let middle = f64::midpoint(good, bad).floor();
            if broken(&at(middle)).is_none() { good = middle } else { bad = middle }
        }
        let limit = match broken(&at(good + 1.0)) {
            Some(bound) => Limit::Slo(bound),
            None if room < way.max_num_seqs => Limit::Memory,
            None => Limit::Seqs,
        };
        Ok(Ok(Carried { concurrency: good, estimate: at(good), limit }))
    }
}
