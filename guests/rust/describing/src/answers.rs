//! What capsules answer when they are asked to describe their tools.

use serde_json::{Map, Value};

/// The tools that one capsule describes, as it describes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The UUID of the capsule, as the host put it on the message.
    pub source_id: String,
    pub tools: Vec<Map<String, Value>>,
}

/// Read an answer: `{"tools": […]}`, or the same in `data`. What is no object, or has no name, is no tool and left out.
/// None for what is no answer at all.
pub(crate) fn read(source_id: &str, payload: &str) -> Option<Answer> {
    let mut answer: Value = serde_json::from_str(payload).ok()?;
    let tools = match answer.get_mut("tools") {
        Some(tools) => tools.take(),
        None => answer.get_mut("data")?.get_mut("tools")?.take(),
    };
    let Value::Array(tools) = tools else {
        return None;
    };
    let tools = tools.into_iter().filter_map(|tool| match tool {
        Value::Object(tool) if tool.get("name").is_some_and(is_name) => Some(tool),
        _ => None,
    });
    Some(Answer { source_id: source_id.to_owned(), tools: tools.collect() })
}

fn is_name(name: &Value) -> bool {
    name.as_str().is_some_and(|name| !name.is_empty())
}

/// Keep one answer of each capsule, the last: whoever asked at the same time made it answer twice.
pub(crate) fn one_of_each(answers: Vec<Answer>) -> Vec<Answer> {
    let mut kept: Vec<Answer> = Vec::new();
    for answer in answers {
        match kept.iter_mut().find(|known| known.source_id == answer.source_id) {
            Some(known) => *known = answer,
            None => kept.push(answer),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(payload: &str) -> Option<Vec<String>> {
        let answer = read("s", payload)?;
        Some(answer.tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn tools_are_in_the_answer_or_in_its_data() {
        for payload in [r#"{"description":"x","tools":[{"name":"a"}]}"#, r#"{"data":{"tools":[{"name":"a"}]}}"#] {
            assert_eq!(names(payload).unwrap(), ["a"]);
        }
    }

    #[test]
    fn what_is_no_tool_is_left_out() {
        let payload = r#"{"tools":[1,{"name":1},{"name":""},{},{"name":"a","input_schema":7}]}"#;
        assert_eq!(names(payload).unwrap(), ["a"]);
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for payload in ["", "1", "[]", "{}", r#"{"tools":1}"#, r#"{"data":[]}"#, r#"{"data":{}}"#] {
            assert_eq!(names(payload), None, "{payload}");
        }
    }

    #[test]
    fn of_several_answers_of_one_capsule_the_last_counts() {
        let answers = ["a", "b", "a"].iter().zip(["1", "2", "3"]);
        let answers = answers.map(|(source, name)| read(source, &format!(r#"{{"tools":[{{"name":"{name}"}}]}}"#)));
        let kept = one_of_each(answers.map(Option::unwrap).collect());
        let kept: Vec<_> = kept.iter().map(|answer| (answer.source_id.as_str(), &answer.tools[0]["name"])).collect();
        assert_eq!(kept, [("a", &"3".into()), ("b", &"2".into())]);
    }
}
