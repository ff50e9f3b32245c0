//! What is kept for each principal: the models there were when it was asked last, and which one answers.

use astrid_sdk::contracts::registry::ProviderEntry;
use serde::{Deserialize, Serialize};

use crate::providers::{configured, provider_of};

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct State {
    #[serde(default)]
    pub(crate) providers: Vec<ProviderEntry>,
    #[serde(default)]
    pub(crate) active_model_id: Option<String>,
    /// Whether somebody chose the active model, or chose that there be none.
    #[serde(default)]
    pub(crate) chosen: bool,
    /// Why a provider told of no model when it was asked last.
    #[serde(default)]
    pub(crate) problem: Option<String>,
}

impl State {
    /// The model that answers.
    pub(crate) fn active(&self) -> Option<&ProviderEntry> {
        let id = self.active_model_id.as_ref()?;
        self.providers.iter().find(|model| model.id == *id)
    }

    /// What keeps a model from answering, where it is not somebody's choice that none does.
    pub(crate) fn problem(&self) -> Option<&str> {
        if self.active().is_some() || (self.chosen && self.active_model_id.is_none()) {
            return None;
        }
        self.problem.as_deref()
    }

    /// Take what providers told, and settle which model answers. None: there was no answer in time, and all stays as it was.
    ///
    /// A model that somebody chose stays while its provider is there, listed or not, for lists may be incomplete; while
    /// there is no provider at all it is not forgotten. Where nobody chose it is the one that the operator configured, else
    /// the first that was told.
    pub(crate) fn take(&mut self, told: Option<Vec<ProviderEntry>>, default_model: &str) {
        if let Some(told) = told {
            let active = self.active().cloned();
            self.providers = Vec::with_capacity(told.len());
            for model in told {
                self.refine(&model);
                self.add(model);
            }
            if let Some(model) = active.filter(|model| self.chosen && self.has_provider(&model.id)) {
                self.add(model);
            }
        }
        if self.chosen && (self.active_model_id.is_none() || self.active().is_some() || self.providers.is_empty()) {
            return;
        }
        self.chosen = false;
        let default = if default_model.is_empty() { None } else { configured(default_model, &self.providers) };
        let active = default.or_else(|| self.providers.first().cloned());
        self.active_model_id = active.as_ref().map(|model| model.id.clone());
        if let Some(model) = active {
            self.add(model);
        }
    }

    /// Have a model answer, or none.
    pub(crate) fn choose(&mut self, id: Option<&str>) {
        self.active_model_id = id.map(str::to_owned);
        self.chosen = true;
    }

    fn add(&mut self, model: ProviderEntry) {
        if self.providers.iter().all(|other| other.id != model.id) {
            self.providers.push(model);
        }
    }

    /// A provider may tell of a model before it knows its limits, and again.
    fn refine(&mut self, told: &ProviderEntry) {
        if let Some(known) =
            self.providers.iter_mut().find(|it| it.id == told.id && it.request_topic == told.request_topic)
        {
            known.context_window = told.context_window.or(known.context_window);
            known.max_output_tokens = told.max_output_tokens.or(known.max_output_tokens);
        }
    }

    fn has_provider(&self, id: &str) -> bool {
        self.providers.iter().any(|model| provider_of(&model.id) == provider_of(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::model;

    fn active(state: &State) -> Option<&str> {
        state.active().map(|model| model.id.as_str())
    }

    fn after(told: &[&str], default_model: &str) -> State {
        let mut state = State::default();
        state.take(Some(told.iter().map(|id| model(id)).collect()), default_model);
        state
    }

    #[test]
    fn without_a_choice_the_configured_model_answers_else_the_first() {
        assert_eq!(active(&after(&["a:m", "a:n"], "")), Some("a:m"));
        assert_eq!(active(&after(&["a:m", "a:n"], "n")), Some("a:n"));
        assert_eq!(active(&after(&["a:m", "b:n"], "b:n")), Some("b:n"));
        assert_eq!(active(&after(&["a:m"], "a:unlisted")), Some("a:unlisted"));
        assert_eq!(active(&after(&["a:m"], "x:y")), Some("a:m"));
        assert_eq!(active(&after(&["a:m", "b:n"], "")), Some("a:m"));
        assert_eq!(active(&after(&[], "")), None);
    }

    #[test]
    fn what_nobody_chose_follows_what_there_is() {
        let mut state = after(&["a:m"], "");
        state.take(Some(vec![model("a:new"), model("a:m")]), "");
        assert_eq!(active(&state), Some("a:new"));
        state.take(Some(vec![model("b:m"), model("a:m")]), "");
        assert_eq!(active(&state), Some("b:m"));
    }

    #[test]
    fn a_choice_stays_as_long_as_its_provider_is_there() {
        let mut state = after(&["a:m", "a:n", "b:m"], "");
        state.choose(Some("a:n"));
        state.take(Some(vec![model("a:m"), model("b:m")]), "b:m");
        assert_eq!(active(&state), Some("a:n"));
        state.take(None, "b:m");
        assert_eq!(active(&state), Some("a:n"));
        state.take(Some(vec![]), "b:m");
        assert_eq!(active(&state), None);
        state.take(Some(vec![model("a:n")]), "");
        assert_eq!(active(&state), Some("a:n"));
        state.take(Some(vec![model("b:m")]), "");
        assert_eq!((active(&state), state.chosen), (Some("b:m"), false));
    }

    #[test]
    fn that_there_be_no_model_is_a_choice() {
        let mut state = after(&["a:m"], "");
        state.choose(None);
        state.take(Some(vec![model("a:m")]), "a:m");
        assert_eq!(active(&state), None);
    }

    #[test]
    fn a_problem_is_told_where_no_model_answers_and_nobody_chose_that() {
        let mut state = State { problem: Some("It is off.".into()), ..State::default() };
        assert_eq!(state.problem(), Some("It is off."));
        state.take(Some(vec![model("a:m")]), "");
        assert_eq!(state.problem(), None);
        state.choose(None);
        assert_eq!(state.problem(), None);
    }

    #[test]
    fn what_is_told_later_of_a_model_counts() {
        let mut later = model("a:m");
        later.context_window = Some(4096);
        let mut state = State::default();
        state.take(Some(vec![model("a:m"), later]), "");
        assert_eq!(state.active().and_then(|model| model.context_window), Some(4096));
    }

    #[test]
    fn a_model_that_is_told_twice_is_there_once() {
        assert_eq!(after(&["a:m", "a:m"], "").providers.len(), 1);
    }

    #[test]
    fn a_state_that_knows_no_choices_is_read() {
        let state: State = serde_json::from_str(r#"{"providers":[],"active_model_id":"a:m"}"#).unwrap();
        assert!(!state.chosen);
    }
}
