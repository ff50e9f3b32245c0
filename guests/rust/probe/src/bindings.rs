//! What `wit/` declares, in Rust.

wit_bindgen::generate!({
    path: [
        "../../../wit/astrid-io@1.0.0.wit",
        "../../../wit/astrid-approval@1.0.0.wit",
        "../../../wit/astrid-elicit@1.0.0.wit",
        "../../../wit/astrid-fs@1.0.0.wit",
        "../../../wit/astrid-guest@1.0.0.wit",
        "../../../wit/astrid-http@1.0.0.wit",
        "../../../wit/astrid-http@1.1.0.wit",
        "../../../wit/astrid-identity@1.0.0.wit",
        "../../../wit/astrid-ipc@1.0.0.wit",
        "../../../wit/astrid-kv@1.0.0.wit",
        "../../../wit/astrid-net@1.0.0.wit",
        "../../../wit/astrid-process@1.0.0.wit",
        "../../../wit/astrid-process@1.1.0.wit",
        "../../../wit/astrid-sys@1.0.0.wit",
        "../../../wit/astrid-uplink@1.0.0.wit",
    ],
    inline: "
        package astrid-host:probe;

        world probe {
            import astrid:approval/host@1.0.0;
            import astrid:elicit/host@1.0.0;
            import astrid:fs/host@1.0.0;
            import astrid:http/host@1.0.0;
            import astrid:http/host@1.1.0;
            import astrid:identity/host@1.0.0;
            import astrid:io/error@1.0.0;
            import astrid:io/poll@1.0.0;
            import astrid:io/streams@1.0.0;
            import astrid:ipc/host@1.0.0;
            import astrid:kv/host@1.0.0;
            import astrid:net/host@1.0.0;
            import astrid:process/host@1.0.0;
            import astrid:process/host@1.1.0;
            import astrid:sys/host@1.0.0;
            import astrid:uplink/host@1.0.0;

            include astrid:guest/interceptor@1.0.0;
            include astrid:guest/installable@1.0.0;
        }
    ",
    world: "astrid-host:probe/probe",
    generate_all,
});

use crate::Probe;
export!(Probe);
