//! approval, elicit, identity and uplink.

use crate::Said;
use crate::bindings::astrid::approval::host as approval;
use crate::bindings::astrid::elicit::host::{self as elicit, ElicitRequest, ElicitType};
use crate::bindings::astrid::identity::host as identity;
use crate::bindings::astrid::uplink::host as uplink;

pub fn approval(said: &mut Said) {
    for action in ["run".to_owned(), "delete".to_owned(), "long ".repeat(1000)] {
        let request = approval::ApprovalRequest { action, target_resource: "ä.txt".into() };
        said.tell("request-approval", approval::request_approval(&request));
    }
}

pub fn elicit(said: &mut Said) {
    let kinds = [
        (ElicitType::Text, None),
        (ElicitType::Secret, None),
        (ElicitType::Select, Some(vec!["red".to_string(), "grün".to_string()])),
        (ElicitType::Array, None),
    ];
    for (kind, options) in kinds {
        let request = ElicitRequest {
            kind,
            key: "key".into(),
            description: "which?".into(),
            options,
            default_value: Some("none".into()),
        };
        said.tell("elicit", elicit::elicit(&request));
    }
    said.tell("has-secret", elicit::has_secret("key"));
    said.tell("has-secret", elicit::has_secret(""));
}

pub fn identity(said: &mut Said) {
    let create = identity::IdentityCreateUserRequest { display_name: Some("Bob".into()) };
    let created = said.note("identity-create-user", identity::identity_create_user(&create));
    let user = created.map_or("nobody".to_string(), |created| created.user_id);
    let (platform, platform_user_id) = ("chat".to_string(), "bob#1".to_string());
    let link = identity::IdentityLinkRequest {
        platform: platform.clone(),
        platform_user_id: platform_user_id.clone(),
        astrid_user_id: user.clone(),
        method: "manual".into(),
    };
    said.tell("identity-link", identity::identity_link(&link));
    said.tell("identity-list-links", identity::identity_list_links(&user));
    said.tell("identity-list-links", identity::identity_list_links("nobody"));
    let resolve =
        identity::IdentityResolveRequest { platform: platform.clone(), platform_user_id: platform_user_id.clone() };
    said.tell("identity-resolve", identity::identity_resolve(&resolve));
    let unlink = identity::IdentityUnlinkRequest { platform, platform_user_id };
    said.tell("identity-unlink", identity::identity_unlink(&unlink));
    said.tell("identity-unlink", identity::identity_unlink(&unlink));
    said.tell("identity-resolve", identity::identity_resolve(&resolve));
}

pub fn uplink(said: &mut Said) {
    use uplink::UplinkProfile::{Bridge, Chat, Interactive, Notify};
    for profile in [Chat, Interactive, Notify, Bridge] {
        let name = format!("{profile:?}");
        let registered = said.note("uplink-register", uplink::uplink_register(&name, "irc", profile));
        let id = registered.unwrap_or("none".into());
        said.tell("uplink-send", uplink::uplink_send(&id, "bob", "hello ä"));
    }
    said.tell("uplink-send", uplink::uplink_send("none", "bob", "hello"));
}
