//! Tools as servers take them.

use astrid_sdk::types::LlmToolDefinition;
use serde_json::{Map, Value, json};

use crate::schema::parameters;

/// A tool for a server. `name`: by which the server knows it.
pub(crate) fn for_server(tool: &LlmToolDefinition, name: &str) -> Value {
    let mut function = Map::new();
    function.insert("name".into(), name.into());
    if let Some(description) = tool.description.as_ref().filter(|text| !text.is_empty()) {
        function.insert("description".into(), description.as_str().into());
    }
    function.insert("parameters".into(), parameters(&tool.input_schema));
    json!({"type": "function", "function": function})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_for_models_is_left_out() {
        let properties = json!({"mutable": {"type": "boolean"}});
        let schema =
            json!({"$schema": "x", "mutable": true, "asks_approval": true, "type": "object", "properties": properties});
        let tool = LlmToolDefinition::new("a:b").with_description("d").with_schema(schema);
        let expected = json!({"type": "function", "function": {
            "name": "a_b", "description": "d", "parameters": {"type": "object", "properties": properties},
        }});
        assert_eq!(for_server(&tool, "a_b"), expected);
    }

    #[test]
    fn a_tool_without_a_schema_has_one_without_properties() {
        let tool = LlmToolDefinition::new("t").with_schema(Value::Null);
        let expected = json!({"name": "t", "parameters": {"type": "object", "properties": {}}});
        assert_eq!(for_server(&tool, "t")["function"], expected);
    }
}
