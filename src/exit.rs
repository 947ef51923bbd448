//! The exit codes, which are part of the interface.

use std::process::ExitCode;

/// How a subcommand that could do its work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: the work is done, and a check, if there was one, says yes.
    Fine,
    /// 1: the work is done, and the check says no; or vLLM would refuse the plan.
    CheckSaysNo,
    /// 2: some of the input is wrong; what could be answered has been.
    WrongInput,
}

/// 2: the input is wrong, so that the question could not be answered.
pub(crate) const WRONG_INPUT: u8 = 2;

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Fine => Self::SUCCESS,
            Exit::CheckSaysNo => Self::from(1),
            Exit::WrongInput => Self::from(WRONG_INPUT),
        }
    }
}
