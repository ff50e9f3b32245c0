//! Of all the tools that were described, those that count, in load order.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::answers::Answer;
use crate::asking::Heard;
use crate::metadata::Capsules;

/// A tool that can be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    /// As its capsule describes it, with an object as `input_schema` that says whether it is mutable.
    pub described: Map<String, Value>,
    /// By its manifest or by its schema; where nobody is known to provide it, by anybody's.
    pub mutable: bool,
    pub asks_approval: bool,
}

/// A tool that more than one capsule describes.
#[derive(Clone, Debug, PartialEq)]
pub struct Duplicate {
    pub tool: String,
    /// The capsule whose tool it is.
    pub kept: String,
    /// The capsule that is not asked.
    pub dropped: String,
}

#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub tools: Vec<Tool>,
    pub duplicates: Vec<Duplicate>,
}

/// A described tool counts only from the capsule that provides it, when any does. Of those that nobody provides by its
/// handlers, the first counts.
#[must_use]
pub fn choose(heard: &Heard) -> Choice {
    let nobody = Capsules::default();
    let capsules = heard.capsules.as_ref().unwrap_or(&nobody);
    let mut choice = Choice::default();
    let mut chosen: HashMap<&str, (usize, &Answer)> = HashMap::new();
    for answer in in_load_order(&heard.answers, capsules) {
        for described in &answer.tools {
            let name = described["name"].as_str().unwrap_or_default();
            let provider = capsules.provider(name);
            if let Some((owner, _)) = provider
                && owner.source_id != answer.source_id
            {
                choice.drop(name, owner.name.clone(), called(answer, capsules));
                continue;
            }
            if let Some((at, winner)) = chosen.get(name) {
                if winner.source_id != answer.source_id {
                    choice.drop(name, called(winner, capsules), called(answer, capsules));
                }
                if says_mutable(described) {
                    choice.tools[*at].set_mutable();
                }
                continue;
            }
            chosen.insert(name, (choice.tools.len(), answer));
            let manifest = provider.map(|(_, provided)| provided);
            let mut tool = Tool {
                name: name.to_owned(),
                described: with_schema(described),
                mutable: false,
                asks_approval: manifest.is_some_and(|provided| provided.asks_approval),
            };
            if says_mutable(described) || manifest.is_some_and(|provided| provided.mutable) {
                tool.set_mutable();
            }
            choice.tools.push(tool);
        }
    }
    choice
}

impl Choice {
    fn drop(&mut self, tool: &str, kept: String, dropped: String) {
        let duplicate = Duplicate { tool: tool.to_owned(), kept, dropped };
        if !self.duplicates.contains(&duplicate) {
            self.duplicates.push(duplicate);
        }
    }
}

impl Tool {
    fn set_mutable(&mut self) {
        self.mutable = true;
        if let Some(Value::Object(schema)) = self.described.get_mut("input_schema") {
            schema.insert("mutable".into(), true.into());
        }
    }
}

fn in_load_order<'a>(answers: &'a [Answer], capsules: &Capsules) -> Vec<&'a Answer> {
    let place = |answer: &&Answer| {
        let at = capsules.0.iter().position(|capsule| capsule.source_id == answer.source_id);
        at.unwrap_or(capsules.0.len())
    };
    let mut sorted: Vec<&Answer> = answers.iter().collect();
    sorted.sort_by_key(place);
    sorted
}

/// The name of the capsule that gave an answer; its UUID where the host did not tell.
fn called(answer: &Answer, capsules: &Capsules) -> String {
    let capsule = capsules.0.iter().find(|capsule| capsule.source_id == answer.source_id);
    capsule.map_or(&answer.source_id, |capsule| &capsule.name).clone()
}

fn says_mutable(described: &Map<String, Value>) -> bool {
    described.get("input_schema").and_then(|schema| schema.get("mutable")) == Some(&Value::Bool(true))
}

/// The tool with a schema that models accept: one without has no arguments.
fn with_schema(described: &Map<String, Value>) -> Map<String, Value> {
    let mut described = described.clone();
    if !described.get("input_schema").is_some_and(Value::is_object) {
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), Map::new().into());
        described.insert("input_schema".into(), schema.into());
    }
    described
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::metadata::{Capsule, Provided};

    fn answer(source: &str, tools: Value) -> Answer {
        let Value::Array(tools) = tools else { panic!("a list of tools") };
        let tools = tools.into_iter().map(|tool| tool.as_object().unwrap().clone()).collect();
        Answer { source_id: source.into(), tools }
    }

    fn capsule(name: &str, tools: &[(&str, bool, bool)]) -> Capsule {
        let tools = tools.iter().map(|(name, mutable, asks_approval)| Provided {
            name: (*name).into(),
            mutable: *mutable,
            asks_approval: *asks_approval,
        });
        Capsule { name: name.into(), source_id: format!("u-{name}"), tools: tools.collect(), ..Capsule::default() }
    }

    fn chosen(answers: Vec<Answer>, capsules: Option<Vec<Capsule>>) -> Choice {
        choose(&Heard { answers, capsules: capsules.map(Capsules), complete: true })
    }

    fn names(choice: &Choice) -> Vec<&str> {
        choice.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    #[test]
    fn tools_come_in_load_order_and_unknown_describers_last() {
        let answers = vec![
            answer("u-x", json!([{"name": "x"}])),
            answer("u-b", json!([{"name": "b2"}, {"name": "b1"}])),
            answer("u-a", json!([{"name": "a"}])),
        ];
        let choice = chosen(answers, Some(vec![capsule("a", &[]), capsule("b", &[])]));
        assert_eq!(names(&choice), ["a", "b2", "b1", "x"]);
        assert_eq!(choice.duplicates, []);
    }

    #[test]
    fn a_capsule_cannot_advertise_what_another_provides() {
        let answers = vec![
            answer("u-first", json!([{"name": "del", "description": "harmless"}])),
            answer("u-fs", json!([{"name": "del", "description": "deletes"}])),
        ];
        let capsules = vec![capsule("first", &[]), capsule("fs", &[("del", true, false)])];
        let choice = chosen(answers, Some(capsules));
        assert_eq!(choice.tools[0].described["description"], "deletes");
        assert!(choice.tools[0].mutable);
        let expected = Duplicate { tool: "del".into(), kept: "fs".into(), dropped: "first".into() };
        assert_eq!(choice.duplicates, [expected]);
    }

    #[test]
    fn what_its_provider_does_not_describe_is_not_offered() {
        let answers = vec![answer("u-first", json!([{"name": "del"}]))];
        let choice = chosen(answers, Some(vec![capsule("first", &[]), capsule("fs", &[("del", true, false)])]));
        assert!(choice.tools.is_empty());
    }

    #[test]
    fn of_what_nobody_provides_the_first_counts_and_it_is_mutable_if_anybody_says_so() {
        let answers = vec![
            answer("u-b", json!([{"name": "t", "description": "b", "input_schema": {"mutable": true}}])),
            answer("u-a", json!([{"name": "t", "description": "a"}, {"name": "t", "description": "again"}])),
        ];
        for (capsules, first, names) in
            [(Some(vec![capsule("a", &[]), capsule("b", &[])]), "a", ("a", "b")), (None, "b", ("u-b", "u-a"))]
        {
            let choice = chosen(answers.clone(), capsules);
            assert_eq!(choice.tools.len(), 1);
            assert_eq!(choice.tools[0].described["description"], first);
            assert_eq!(choice.tools[0].described["input_schema"]["mutable"], true);
            let expected = Duplicate { tool: "t".into(), kept: names.0.into(), dropped: names.1.into() };
            assert_eq!(choice.duplicates, [expected]);
        }
    }

    #[test]
    fn mutable_comes_from_the_manifest_or_from_the_schema_and_is_in_the_schema() {
        let answers = vec![answer(
            "u-a",
            json!([
                {"name": "m", "input_schema": {"type": "object"}},
                {"name": "s", "input_schema": {"type": "object", "mutable": true}},
                {"name": "n", "input_schema": {"type": "object", "mutable": false}},
                {"name": "q"},
            ]),
        )];
        let provides = [("m", true, false), ("s", false, false), ("n", false, false), ("q", true, true)];
        let choice = chosen(answers, Some(vec![capsule("a", &provides)]));
        let flags: Vec<_> = choice.tools.iter().map(|tool| (tool.mutable, tool.asks_approval)).collect();
        assert_eq!(flags, [(true, false), (true, false), (false, false), (true, true)]);
        for tool in &choice.tools {
            let schema = &tool.described["input_schema"];
            assert_eq!(schema.get("mutable").and_then(Value::as_bool).unwrap_or(false), tool.mutable);
        }
        assert_eq!(choice.tools[3].described["input_schema"], json!({"type":"object","properties":{},"mutable":true}));
    }
}
