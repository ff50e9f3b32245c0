//! Schemas of tools as the least of the servers takes them: of each property one type, and only the words that all know.
//!
//! A type that may also be null is that type: what is not required may be left out anyway. References are resolved. What
//! a schema says beyond that is left to the tool, which checks its arguments itself.

use serde_json::{Map, Value, json};

/// Words that every server takes as they are.
const PLAIN: [&str; 5] = ["description", "minimum", "maximum", "minItems", "maxItems"];
const FORMATS: [(&str, &[&str]); 3] =
    [("string", &["date-time"]), ("integer", &["int32", "int64"]), ("number", &["float", "double"])];
const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "array", "object"];
/// How deep schemas are followed, references included, and how many there are in one tool.
const LEVELS: usize = 16;
const SCHEMAS: usize = 2000;

/// The parameters of a tool: an object that names its properties.
pub(crate) fn parameters(schema: &Value) -> Value {
    let mut reader = Reader { root: schema, left: SCHEMAS };
    let mut schema = match reader.read(schema, 0) {
        Value::Object(schema) if schema.get("type").is_some_and(|kind| kind == "object") => schema,
        _ => Map::new(),
    };
    schema.insert("type".into(), "object".into());
    schema.entry("properties").or_insert_with(|| json!({}));
    Value::Object(schema)
}

struct Reader<'a> {
    root: &'a Value,
    left: usize,
}

impl<'a> Reader<'a> {
    fn read(&mut self, schema: &'a Value, level: usize) -> Value {
        self.left = self.left.saturating_sub(1);
        let Some(given) = schema.as_object().filter(|_| level < LEVELS && self.left > 0) else {
            return json!({"type": "string"});
        };
        let mut read = self.referred(given, level);
        for key in PLAIN {
            if let Some(value) = given.get(key) {
                read.insert(key.into(), value.clone());
            }
        }
        self.read_alternatives(given, &mut read, level);
        let kinds = types(given);
        if let [kind] = kinds[..] {
            read.insert("type".into(), kind.into());
        } else if let [_, ..] = kinds[..] {
            let each = kinds.iter().map(|kind| self.of_type(given, kind, level)).collect::<Vec<_>>();
            read.insert("anyOf".into(), each.into());
        }
        self.read_parts(given, &mut read, level);
        read_values(given, &mut read);
        finish(&mut read, given);
        Value::Object(read)
    }

    /// One of several types that a value may have.
    fn of_type(&mut self, given: &'a Map<String, Value>, kind: &str, level: usize) -> Value {
        let mut read = Map::from_iter([("type".to_owned(), Value::from(kind))]);
        match kind {
            "object" | "array" => self.read_parts(given, &mut read, level),
            _ => {}
        }
        read.retain(|key, _| match key.as_str() {
            "items" => kind == "array",
            "properties" | "required" => kind == "object",
            _ => true,
        });
        finish(&mut read, &Map::new());
        Value::Object(read)
    }

    /// What `$ref` and `allOf` say, together.
    fn referred(&mut self, given: &'a Map<String, Value>, level: usize) -> Map<String, Value> {
        let target = given
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| self.root.pointer(reference.strip_prefix('#')?));
        let all = given.get("allOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut read = Map::new();
        for schema in target.into_iter().chain(all) {
            if let Value::Object(part) = self.read(schema, level + 1) {
                merge(&mut read, part);
            }
        }
        read
    }

    /// `anyOf` and `oneOf`: without null; one that is left stands for itself.
    fn read_alternatives(&mut self, given: &'a Map<String, Value>, read: &mut Map<String, Value>, level: usize) {
        let lists = ["anyOf", "oneOf"].iter().filter_map(|key| given.get(*key)?.as_array()).flatten();
        let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
        let mut each: Vec<Value> = Vec::new();
        for schema in lists.filter(|schema| !is_null(schema)) {
            let schema = self.read(schema, level + 1);
            if !each.contains(&schema) {
                each.push(schema);
            }
        }
        match each.len() {
            0 => {}
            1 => {
                if let Some(Value::Object(only)) = each.pop() {
                    merge(read, only);
                }
            }
            _ => match one_of_texts(&each) {
                Some(texts) => {
                    read.insert("type".into(), "string".into());
                    read.insert("enum".into(), texts);
                }
                None => {
                    read.insert("anyOf".into(), each.into());
                }
            },
        }
    }

    fn read_parts(&mut self, given: &'a Map<String, Value>, read: &mut Map<String, Value>, level: usize) {
        if let Some(properties) = given.get("properties").and_then(Value::as_object) {
            let mut found = Map::new();
            for (name, schema) in properties {
                found.insert(name.clone(), self.read(schema, level + 1));
            }
            merge(read, Map::from_iter([("properties".to_owned(), Value::Object(found))]));
        }
        if let Some(required) = given.get("required").filter(|required| required.is_array()) {
            merge(read, Map::from_iter([("required".to_owned(), required.clone())]));
        }
        let first = |items: &'a Value| items.as_array().map_or(Some(items), |list| list.first());
        if let Some(items) = given.get("items").or_else(|| given.get("prefixItems")).and_then(first) {
            read.insert("items".into(), self.read(items, level + 1));
        }
    }
}

/// Add what another schema says of the same value; what is known stays.
fn merge(read: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (read.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) if key == "properties" => known.extend(more),
            (Some(Value::Array(known)), Value::Array(more)) if key == "required" => known.extend(more),
            (Some(_), _) => {}
            (None, value) => {
                read.insert(key, value);
            }
        }
    }
}

fn types(given: &Map<String, Value>) -> Vec<&str> {
    let kind = given.get("type").unwrap_or(&Value::Null);
    let list = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
    let mut kinds: Vec<&str> = Vec::new();
    for kind in list.iter().filter_map(Value::as_str).filter(|kind| TYPES.contains(kind)) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    if kinds.contains(&"number") {
        kinds.retain(|kind| *kind != "integer");
    }
    kinds
}

/// The texts of alternatives that are each one of some texts.
fn one_of_texts(each: &[Value]) -> Option<Value> {
    let texts = each.iter().map(|schema| schema.get("enum")?.as_array());
    let all: Option<Vec<_>> = texts.collect();
    Some(all?.into_iter().flatten().cloned().collect())
}

/// `enum` and `const`: of texts as they are; of others in words, as some servers take no other.
fn read_values(given: &Map<String, Value>, read: &mut Map<String, Value>) {
    let constant = given.get("const").map(std::slice::from_ref);
    let Some(values) = given.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(constant) else { return };
    let values: Vec<&Value> = values.iter().filter(|value| !value.is_null()).collect();
    if values.is_empty() {
        return;
    }
    if values.iter().all(|value| value.is_string()) {
        read.insert("type".into(), "string".into());
        read.insert("enum".into(), values.into_iter().cloned().collect());
        return;
    }
    let told = values.iter().map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
    let before = read.get("description").and_then(Value::as_str).map(|text| format!("{text} ")).unwrap_or_default();
    read.insert("description".into(), format!("{before}One of: {told}.").into());
    if !read.contains_key("type") {
        let kind = match values[0] {
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            _ => "string",
        };
        read.insert("type".into(), kind.into());
    }
}

/// Each schema has a type, or alternatives that have; a list says of what; and nothing is said of other types.
fn finish(read: &mut Map<String, Value>, given: &Map<String, Value>) {
    if !read.contains_key("type") && !read.contains_key("anyOf") {
        let kind = if read.contains_key("properties") || given.contains_key("additionalProperties") {
            "object"
        } else if read.contains_key("items") {
            "array"
        } else {
            "string"
        };
        read.insert("type".into(), kind.into());
    }
    if read.contains_key("type") {
        read.remove("anyOf");
    }
    let kind = read.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind == "array" {
        read.entry("items").or_insert_with(|| json!({"type": "string"}));
    }
    if let Some(Value::String(format)) = given.get("format")
        && FORMATS.iter().any(|(of, formats)| *of == kind && formats.contains(&format.as_str()))
    {
        read.insert("format".into(), format.as_str().into());
    }
    let named: Vec<String> =
        read.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let required = read.get_mut("required").and_then(Value::as_array_mut).map(|required| {
        let mut seen = Vec::new();
        required.retain(|name| {
            let keep =
                name.as_str().is_some_and(|name| named.iter().any(|known| known == name)) && !seen.contains(name);
            seen.push(name.clone());
            keep
        });
        required.len()
    });
    if required == Some(0) {
        read.remove("required");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(schema: Value) -> Value {
        parameters(&json!({"type": "object", "properties": {"p": schema}}))["properties"]["p"].clone()
    }

    #[test]
    fn a_type_is_one_and_null_is_none() {
        for (given, expected) in [
            (
                json!({"type": ["integer", "null"], "format": "uint64", "minimum": 0.0}),
                json!({"type": "integer", "minimum": 0.0}),
            ),
            (
                json!({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"}),
                json!({"type": "string", "description": "d"}),
            ),
            (
                json!({"oneOf": [{"type": "null"}, {"type": "array", "items": {"type": ["number", "null"]}}]}),
                json!({"type": "array", "items": {"type": "number"}}),
            ),
            (json!({"type": ["string", "integer"]}), json!({"anyOf": [{"type": "string"}, {"type": "integer"}]})),
            (json!({"type": ["integer", "number"], "format": "double"}), json!({"type": "number", "format": "double"})),
            (
                json!({"type": ["array", "string"]}),
                json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
            ),
            (json!(true), json!({"type": "string"})),
            (json!({}), json!({"type": "string"})),
            (json!({"additionalProperties": {"type": "string"}}), json!({"type": "object"})),
            (
                json!({"type": "string", "format": "uri", "pattern": "x", "default": null, "title": "t"}),
                json!({"type": "string"}),
            ),
        ] {
            assert_eq!(property(given.clone()), expected, "{given}");
        }
    }

    #[test]
    fn values_are_texts_or_told() {
        for (given, expected) in [
            (json!({"enum": ["a", null, "b"]}), json!({"type": "string", "enum": ["a", "b"]})),
            (json!({"const": "a"}), json!({"type": "string", "enum": ["a"]})),
            (
                json!({"type": "integer", "enum": [1, 2], "description": "d"}),
                json!({"type": "integer", "description": "d One of: 1, 2."}),
            ),
            (
                json!({"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}]}),
                json!({"type": "string", "enum": ["a", "b", "c"]}),
            ),
        ] {
            assert_eq!(property(given.clone()), expected, "{given}");
        }
    }

    #[test]
    fn references_are_resolved_and_those_to_themselves_end() {
        let schema = json!({
            "$schema": "x", "type": "object", "required": ["a", "gone", "a"],
            "properties": {"a": {"$ref": "#/$defs/A", "description": "mine"}, "b": {"allOf": [{"$ref": "#/definitions/B"}]}},
            "$defs": {"A": {"type": "object", "description": "its", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
            "definitions": {"B": {"type": "string"}},
        });
        assert_eq!(
            parameters(&schema),
            json!({
                "type": "object", "required": ["a"],
                "properties": {
                    "a": {"type": "object", "description": "mine", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
                    "b": {"type": "string"},
                },
            })
        );
        let node = json!({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#/nowhere"}}});
        let read = parameters(&node).to_string();
        assert!(!read.contains("$ref") && read.len() < 400_000, "{}", read.len());
    }

    #[test]
    fn whatever_is_given_parameters_are_an_object() {
        for given in [
            json!(null),
            json!([]),
            json!(true),
            json!("x"),
            json!({"type": "string"}),
            json!({"type": ["object", "null"]}),
            json!({"required": []}),
        ] {
            assert_eq!(parameters(&given), json!({"type": "object", "properties": {}}), "{given}");
        }
    }
}
