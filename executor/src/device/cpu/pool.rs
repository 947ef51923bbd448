//! How do the programs of one launch spread over threads that wait between launches?
//!
//! A thread that has nothing to do looks for more for a while before it sleeps: the launches of a step follow one
//! another faster than a sleeping thread wakes up.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kernels::Kernel;
use kernels::cpu::Level;

use super::Launch;

/// How long a thread looks before it sleeps.
const LOOKS: Duration = Duration::from_micros(100);
/// Bytes that a launch moves before a second core is of use: what one moves while another wakes up.
const SPREADS: u64 = 512 << 10;

/// A launch as the threads see it: the words are copied, so nothing is borrowed.
struct Job {
    level: Level,
    kernel: Kernel,
    words: Vec<u64>,
    grid: [u32; 3],
    programs: u64,
    next: AtomicU64,
}

impl Job {
    /// Takes programs until none is left.
    ///
    /// # Safety
    /// As `kernels::cpu::run`, until every thread has returned.
    unsafe fn work(&self) {
        let [gx, gy, _] = self.grid;
        loop {
            let first = self.next.fetch_add(1, Ordering::Relaxed);
            if first >= self.programs {
                return;
            }
            // SAFETY: as the caller promises; each program is taken once.
            unsafe { kernels::cpu::run(self.level, self.kernel, &self.words, gx, gy, first, first + 1) };
        }
    }
}

#[derive(Default)]
struct Board {
    job: Option<Arc<Job>>,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    board: Mutex<Board>,
    /// Jobs put on the board so far, and one more at the end; changes while the board is locked.
    posted: AtomicU64,
    /// Threads that have taken the job and not ended it; taken while the board is locked.
    busy: AtomicUsize,
    started: Condvar,
    finished: Condvar,
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for a while; whether it was seen.
fn look(for_it: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            if for_it() {
                return true;
            }
            spin_loop();
        }
        if start.elapsed() > LOOKS {
            return false;
        }
    }
}

/// Threads beside the caller's.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// With this many threads; those that cannot be started are done without.
    pub(super) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let start = |_| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("k3-kernel".to_owned()).spawn(move || serve(&shared)).ok()
        };
        let threads = (0..threads).filter_map(start).collect();
        Self { shared, threads }
    }

    /// Runs a launch to its end, on this thread alone where it is small.
    ///
    /// # Safety
    /// As `kernels::cpu::run` for the whole grid.
    pub(super) unsafe fn run(&self, level: Level, launch: &Launch) {
        let spreads = launch.kernel.spreads() && launch.moved.bytes() >= SPREADS;
        let threads = if spreads { 1 + self.threads.len() } else { 1 };
        let grid = launch.kernel.cpu_grid(launch.grid, u32::try_from(threads).unwrap_or(u32::MAX));
        let programs = grid.iter().map(|n| u64::from(*n)).product();
        if threads == 1 || programs == 1 {
            let [gx, gy, _] = grid;
            // SAFETY: as the caller promises.
            unsafe { kernels::cpu::run(level, launch.kernel, &launch.words, gx, gy, 0, programs) };
            return;
        }
        let words = launch.words.clone();
        let next = AtomicU64::new(0);
        let job = Arc::new(Job { level, kernel: launch.kernel, words, grid, programs, next });
        let shared = &*self.shared;
        {
            let mut board = shared.board();
            board.job = Some(Arc::clone(&job));
            shared.posted.fetch_add(1, Ordering::Release);
        }
        shared.started.notify_all();
        // SAFETY: as the caller promises; the wait below ends after the last thread that has taken the job.
        unsafe { job.work() };
        // All programs are taken: a thread that wakes up only now finds nothing, and is not waited for.
        shared.board().job = None;
        let ended = || shared.busy.load(Ordering::Acquire) == 0;
        if !look(ended) {
            let mut board = shared.board();
            while !ended() {
                board = shared.finished.wait(board).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

fn serve(shared: &Shared) {
    let mut seen = 0;
    loop {
        look(|| shared.posted.load(Ordering::Acquire) != seen);
        let job = {
            let mut board = shared.board();
            while shared.posted.load(Ordering::Acquire) == seen {
                board = shared.started.wait(board).unwrap_or_else(PoisonError::into_inner);
            }
            if board.ended {
                return;
            }
            seen = shared.posted.load(Ordering::Acquire);
            let Some(job) = board.job.clone() else { continue };
            shared.busy.fetch_add(1, Ordering::AcqRel);
            job
        };
        // SAFETY: `Pool::run` waits until this thread says below that it is done.
        unsafe { job.work() };
        if shared.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Locked, so that a caller between its look and its sleep is not missed.
            let _board = shared.board();
            shared.finished.notify_one();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let mut board = self.shared.board();
            board.ended = true;
            self.shared.posted.fetch_add(1, Ordering::Release);
        }
        self.shared.started.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}
