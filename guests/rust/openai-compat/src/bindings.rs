//! HTTP with bounds of one's own choosing, which the SDK does not offer. What is waited for is the SDK's, so that a
//! response and a subscription can be waited for together.

wit_bindgen::generate!({
    path: ["../../../wit/astrid-io@1.0.0.wit", "../../../wit/astrid-http@1.1.0.wit"],
    inline: "
        package astrid-host:openai-compat;

        world asking {
            import astrid:http/host@1.1.0;
        }
    ",
    world: "astrid-host:openai-compat/asking",
    with: {
        "astrid:io/error@1.0.0": astrid_sys::astrid::io::error,
        "astrid:io/poll@1.0.0": astrid_sys::astrid::io::poll,
        "astrid:io/streams@1.0.0": astrid_sys::astrid::io::streams,
        "astrid:http/host@1.1.0": generate,
    },
});
