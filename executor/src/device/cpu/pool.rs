//! How do the programs of one launch spread over threads that wait between launches?

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use kernels::Kernel;
use kernels::cpu::Level;

use super::Launch;

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
        loop {
            let first = self.next.fetch_add(1, Ordering::Relaxed);
            if first >= self.programs {
                return;
            }
            // SAFETY: as the caller promises; each program is taken once.
            unsafe {
                kernels::cpu::run(
                    self.level,
                    self.kernel,
                    &self.words,
                    self.grid[0],
                    self.grid[1],
                    first,
                    first + 1,
                );
            }
        }
    }
}

#[derive(Default)]
struct Board {
    job: Option<Arc<Job>>,
    number: u64,
    busy: usize,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    board: Mutex<Board>,
    started: Condvar,
    finished: Condvar,
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
        let programs = launch.grid.iter().map(|n| u64::from(*n)).product();
        if self.threads.is_empty() || !launch.kernel.moves_much() || programs == 1 {
            let [gx, gy, _] = launch.grid;
            // SAFETY: as the caller promises.
            unsafe { kernels::cpu::run(level, launch.kernel, &launch.words, gx, gy, 0, programs) };
            return;
        }
        let job = Arc::new(Job {
            level,
            kernel: launch.kernel,
            words: launch.words.clone(),
            grid: launch.grid,
            programs,
            next: AtomicU64::new(0),
        });
        {
            let mut board = self.shared.board.lock().unwrap_or_else(PoisonError::into_inner);
            board.job = Some(Arc::clone(&job));
            board.number += 1;
            board.busy = self.threads.len();
        }
        self.shared.started.notify_all();
        // SAFETY: as the caller promises; the wait below ends after the last thread.
        unsafe { job.work() };
        let mut board = self.shared.board.lock().unwrap_or_else(PoisonError::into_inner);
        while board.busy > 0 {
            board = self.shared.finished.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
        board.job = None;
    }
}

fn serve(shared: &Shared) {
    let mut seen = 0;
    loop {
        let job = {
            let mut board = shared.board.lock().unwrap_or_else(PoisonError::into_inner);
            while board.number == seen && !board.ended {
                board = shared.started.wait(board).unwrap_or_else(PoisonError::into_inner);
            }
            if board.ended {
                return;
            }
            seen = board.number;
            board.job.clone()
        };
        if let Some(job) = job {
            // SAFETY: `Pool::run` waits until this thread says below that it is done.
            unsafe { job.work() };
        }
        let mut board = shared.board.lock().unwrap_or_else(PoisonError::into_inner);
        board.busy -= 1;
        if board.busy == 0 {
            shared.finished.notify_one();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.board.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.shared.started.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}
