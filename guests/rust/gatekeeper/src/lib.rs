//! Stands before every tool and lets those calls pass that change nothing, or that somebody approved.
//!
//! It fails closed: what it cannot find out counts as mutable, and what nobody answers is denied. It goes by the tool's name
//! in the call, since a handler is not told the topic: who may publish calls is trusted to name the tool that it calls, as
//! the router does.

mod approval;
mod asking;
mod call;
mod flags;
mod known;
mod ledger;
mod shown;
mod unclear;

use approval::Approval;
use asking::{Denied, approve, beginning};
use astrid_sdk::prelude::*;
use call::Passing;
use serde::Deserialize;

#[derive(Default)]
pub struct Gatekeeper;

#[derive(Deserialize)]
pub struct Cancelled {
    #[serde(default)]
    call_ids: Vec<String>,
}

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

    /// Nobody asks about a cancelled call any more: if it is made again, it is asked about anew.
    #[astrid::interceptor("on_cancel")]
    fn on_cancel(&self, cancelled: Cancelled) -> Result<(), SysError> {
        let beginnings: Vec<String> = cancelled.call_ids.iter().map(|id| beginning(id)).collect();
        ledger::forget(&beginnings)
    }
}
