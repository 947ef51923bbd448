//! What one step of the scheduler does.

/// A request's part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheduled {
    /// The caller's number of the request.
    pub id: u32,
    /// Its slot in the scheduler.
    pub(crate) slot: u32,
    pub(crate) serial: u64,
    /// Tokens computed in this step, drafts included.
    pub tokens: u32,
    /// Draft tokens among them.
    pub drafts: u32,
    /// Tokens computed before.
    pub computed: u32,
    /// Tokens the step gives: none in the middle of a prefill.
    pub generated: u32,
    /// Where its block counts lie.
    pub(crate) blocks: (u32, u32),
}

/// A step, written anew each time.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// 0-based number.
    pub index: u64,
    /// What is computed, running requests first.
    pub scheduled: Vec<Scheduled>,
    /// Requests scheduled for the first time: number and tokens found in the prefix cache.
    pub new: Vec<(u32, u32)>,
    /// Requests taken up again after a preemption, likewise.
    pub resumed: Vec<(u32, u32)>,
    /// Requests that lost their blocks.
    pub preempted: Vec<u32>,
    /// Free blocks afterwards.
    pub free_blocks: u64,
    /// Running requests afterwards.
    pub running: u32,
    /// Waiting requests afterwards.
    pub waiting: u32,
    /// Requests that ended when a step came back after this one was scheduled.
    pub finished: Vec<u32>,
    /// Block counts: groups that got as many, and how many each.
    pub(crate) blocks: Vec<(u32, u32)>,
}

impl Step {
    /// Tokens over all requests.
    pub fn tokens(&self) -> u64 {
        self.scheduled.iter().map(|part| u64::from(part.tokens)).sum()
    }

    /// New block-table entries of one part: for each run of equal groups, how many groups and how many
    /// entries a group. Empty where nothing is sent.
    pub fn new_blocks(&self, part: &Scheduled) -> &[(u32, u32)] {
        self.blocks.get(part.blocks.0 as usize..part.blocks.1 as usize).unwrap_or(&[])
    }

    /// Gives requests the names that `names` has for them.
    pub(crate) fn rename(&mut self, names: &[u32]) {
        let name = |id: &mut u32| *id = names.get(*id as usize).copied().unwrap_or(*id);
        self.scheduled.iter_mut().for_each(|part| name(&mut part.id));
        self.new.iter_mut().for_each(|(id, _)| name(id));
        self.resumed.iter_mut().for_each(|(id, _)| name(id));
        self.preempted.iter_mut().for_each(name);
        self.finished.iter_mut().for_each(name);
    }

    pub(crate) fn clear(&mut self, index: u64) {
        self.index = index;
        self.scheduled.clear();
        self.new.clear();
        self.resumed.clear();
        self.preempted.clear();
        self.finished.clear();
        self.blocks.clear();
    }
}
