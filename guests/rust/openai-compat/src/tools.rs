//! Tools as servers take them.

use astrid_sdk::types::LlmToolDefinition;
use serde_json::{Map, Value, json};

/// Keys of a schema that are said to others than the model.
const NOT_FOR_MODELS: [&str; 3] = ["$schema", "mutable", "asks_approval"];

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

/// Servers take only a schema of an object that names its properties.
fn parameters(schema: &Value) -> Value {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    for key in NOT_FOR_MODELS {
        schema.remove(key);
    }
    schema.entry("type").or_insert_with(|| "object".into());
    schema.entry("properties").or_insert_with(|| json!({}));
    Value::Object(schema)
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
