//! Stands before every tool and lets those calls pass that change nothing, or that somebody approved.
//!
//! It fails closed: what it cannot find out counts as mutable, and what nobody answers is denied. It goes by the tool's name
//! in the call, since a handler is not told the topic: the host's contract of these topics says that both are the same.

mod approval;
mod asking;
mod call;
mod flags;
mod known;
mod ledger;
mod shown;
mod unclear;

use approval::Approval;
use asking::{Denied, approve};
use astrid_sdk::prelude::*;
use call::Passing;

#[derive(Default)]
pub struct Gatekeeper;

/// Asks for approval before a tool runs that changes something.
#[capsule]
impl Gatekeeper {
    /// Let an event on its way to a tool pass, or deny it with a result. What is no call passes.
    #[astrid::interceptor("guard")]
    fn guard(&self, passing: Passing<'_>) -> Result<(), Denied> {
        let Passing::Call(call) = passing else {
            return Ok(());
        };
        let approval = Approval::configured();
        if approval == Approval::Never || !approval.asks(known::flag_of(&call.tool_name)) {
            return Ok(());
        }
        approve(&call)
    }

    /// Another set of capsules may have other tools.
    #[astrid::interceptor("on_capsules_loaded")]
    fn on_capsules_loaded(&self) -> Result<(), SysError> {
        known::drop_all()
    }
}
