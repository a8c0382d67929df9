//! systemd units, Debian packages, the container image.

use crate::process::{FREE_PORTS, Meter, Program};
use crate::{command, done, here};
use std::fs;
use std::path::{Path, PathBuf};

/// This build's binary without its symbols, which would make up most of a package.
fn stripped(folder: &Path) -> Option<PathBuf> {
    let to = folder.join("spangap");
    let text = to.to_str().expect("a plain path");
    done("objcopy", &["--strip-all", env!("CARGO_BIN_EXE_spangap"), text])?;
    Some(to)
}

#[test]
fn systemd_accepts_the_units() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["spangap-meter", "spangap-agent"] {
        let unit = fs::read_to_string(here(&format!("deploy/systemd/{name}.service"))).expect("text");
        // The installed path does not exist yet.
        let unit = unit.replace("/usr/bin/spangap", env!("CARGO_BIN_EXE_spangap"));
        let path = folder.path().join(format!("{name}.service"));
        fs::write(&path, unit).expect("written");
        let path = path.to_str().expect("a plain path");
        let Some(said) = done("systemd-analyze", &["verify", "--man=no", path]) else {
            return println!("not run: the units of deploy/systemd: there is no systemd-analyze");
        };
        // systemd-analyze prints what it ignores, and still succeeds.
        assert!(!said.contains(name), "{said}");
    }
}

#[test]
fn the_meter_accepts_the_packages_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = here("deploy/systemd/meter.toml");
    let arguments = ["--config", settings.to_str().expect("a plain path"), "--data"];
    let data = folder.path().join("data");
    let arguments =
        [&["meter"], &FREE_PORTS[..], &arguments[..], &[data.to_str().expect("a plain path")]].concat();
    let meter = Meter::ready(Program::start(&arguments));
    assert_eq!(meter.stop().code, Some(0));
    // What the file offers in a comment is an option, too.
    let text = fs::read_to_string(&settings).expect("text");
    let offered: String = text
        .lines()
        .filter_map(|line| line.strip_prefix("# ").filter(|rest| rest.split_once(" = \"").is_some()))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(offered.lines().count() > 5, "{offered}");
    let papers = folder.path().to_str().expect("a plain path");
    let new = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=meter",
    ];
    let files = ["-keyout", &format!("{papers}/key.pem"), "-out", &format!("{papers}/cert.pem")];
    done("openssl", &[&new[..], &files[..]].concat()).expect("openssl is there");
    fs::write(folder.path().join("tokens"), "view 0123456789abcdef\n").expect("written");
    let offered = offered.replace("/etc/spangap/", &format!("{papers}/"));
    let all = folder.path().join("all.toml");
    fs::write(&all, offered).expect("written");
    let all = ["meter", "--config", all.to_str().expect("a plain path")];
    let meter = Meter::ready(Program::start(&[&all[..], &FREE_PORTS[..]].concat()));
    assert_eq!(meter.stop().code, Some(0));
}

/// A supervisor may stop a service that is still starting.
#[test]
fn a_meter_stopped_right_after_readiness_ends_cleanly() {
    for _ in 0..20 {
        let meter = Meter::ready(Program::start(&[&["meter"], &FREE_PORTS[..]].concat()));
        let pid = rustix::process::Pid::from_raw(meter.program.id() as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
        let ended = meter.program.wait();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

#[test]
fn debian_packages_are_complete_and_reproducible() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(binary) = stripped(folder.path()) else {
        return println!("not run: Debian packages: there is no objcopy");
    };
    let made = |out: &str| {
        let out = folder.path().join(out);
        let mut making = command("scripts/deb.sh", &[out.to_str().expect("a plain path")]);
        let output = making.env("SPANGAP", &binary).env("COMPRESS", "none").output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("the program dpkg") {
            return Err(said);
        }
        assert!(output.status.success(), "{said}");
        let text = String::from_utf8(output.stdout).expect("paths");
        Ok(text.lines().map(PathBuf::from).collect::<Vec<_>>())
    };
    let packages = match made("one") {
        Ok(packages) => packages,
        Err(why) => return println!("not run: {why}"),
    };
    assert_eq!(packages.len(), 3, "{packages:?}");
    for (one, other) in packages.iter().zip(made("two").expect("it was there")) {
        assert!(
            fs::read(one).expect("bytes") == fs::read(&other).expect("bytes"),
            "{} differs",
            one.display()
        );
    }
    let of = |name: &str, what: &str| {
        let file = packages.iter().find(|path| path.to_str().is_some_and(|path| path.contains(name)));
        done("dpkg-deb", &[what, file.expect(name).to_str().expect("a plain path")])
            .expect("dpkg-deb is there")
    };
    let files = of("/spangap_", "--contents");
    for file in [
        "./usr/bin/spangap",
        "man1/spangap-meter.1.gz",
        "completions/spangap",
        "_spangap",
        "grafana/fleet.json",
        "copyright",
    ] {
        assert!(files.contains(file), "no {file} in {files}");
    }
    assert!(files.lines().all(|line| line.contains(" root/root ")), "{files}");
    assert!(of("/spangap_", "--field").contains("Depends: libc6 (>= "), "{}", of("/spangap_", "--field"));
    for (name, setting) in [("spangap-meter", "meter.toml"), ("spangap-agent", "agent.env")] {
        let files = of(&format!("/{name}_"), "--contents");
        assert!(files.contains(&format!("./lib/systemd/system/{name}.service")), "{files}");
        assert!(files.contains(&format!("./etc/spangap/{setting}")), "{files}");
        assert!(of(&format!("/{name}_"), "--field").contains("Depends: spangap (= "), "{name}");
    }
}

#[test]
fn the_image_is_reproducible_and_its_program_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(binary) = stripped(folder.path()) else {
        return println!("not run: the container image: there is no objcopy");
    };
    let [one, two] = ["one.tar", "two.tar"].map(|name| folder.path().join(name));
    for file in [&one, &two] {
        let mut making = command("scripts/image.sh", &["spangap:test", file.to_str().expect("a plain path")]);
        let output = making.env("SPANGAP", &binary).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(
        fs::read(&one).expect("bytes") == fs::read(&two).expect("bytes"),
        "two images of one binary differ"
    );

    let (image, root) = (folder.path().join("image"), folder.path().join("root"));
    let unpack = |file: &Path, to: &Path| {
        fs::create_dir(to).expect("a folder");
        let [file, to] = [file, to].map(|path| path.to_str().expect("a plain path"));
        done("tar", &["--extract", "--file", file, "--directory", to]).expect("tar is there");
    };
    unpack(&one, &image);
    let read = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&fs::read(path).expect("bytes")).expect("JSON")
    };
    let manifest = read(&image.join("manifest.json"));
    assert_eq!(manifest[0]["RepoTags"][0], "spangap:test");
    let config = read(&image.join(manifest[0]["Config"].as_str().expect("a name")));
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/spangap");
    let layer = image.join(manifest[0]["Layers"][0].as_str().expect("a name"));
    // A blob named by its digest must have that digest.
    let sum = done("sha256sum", &[layer.to_str().expect("a plain path")]).expect("sha256sum is there");
    let digest = config["rootfs"]["diff_ids"][0].as_str().expect("a digest");
    assert_eq!(Some(digest.trim_start_matches("sha256:")), sum.split(' ').next());
    unpack(&layer, &root);
    if !rustix::process::geteuid().is_root() {
        return println!("not run: the program inside of the image: chroot needs root");
    }
    let said = done("chroot", &[root.to_str().expect("a plain path"), "/usr/bin/spangap", "--version"]);
    assert!(said.is_some_and(|said| said.starts_with("spangap ")));
}
