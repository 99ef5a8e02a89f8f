//! The links of the pages, the project's address, and the runs that pages name.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::fs;
use std::path::Path;
use std::process::Command;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The targets in parentheses after brackets, and the definitions in lines that begin with
/// brackets.
fn targets(text: &str) -> Vec<&str> {
    let inline = text.match_indices("](").map(|(at, _)| text[at + 2..].split(')').next().unwrap());
    let is_definition = |line: &&str| line.starts_with('[');
    let defined = text.lines().filter(is_definition).filter_map(|line| line.split_once("]: "));
    inline.chain(defined.map(|(_, target)| target)).collect()
}

fn value<'m>(manifest: &'m str, key: &str) -> &'m str {
    let line = manifest.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='));
    line.unwrap().trim().trim_matches('"')
}

fn read(file: &str) -> String {
    fs::read_to_string(workspace().join(file)).unwrap()
}

/// The files that git knows, as paths from the workspace, with `/` on each system.
fn files() -> Vec<String> {
    let output = Command::new("git").arg("ls-files").current_dir(workspace()).output().unwrap();
    assert!(output.status.success(), "git ls-files: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The pages, without their code.
fn pages() -> Vec<(String, String)> {
    let is_page = |file: &String| {
        Path::new(file).extension().is_some_and(|end| end == "md")
            && workspace().join(file).exists()
    };
    let pages = files().into_iter().filter(is_page);
    pages.map(|page| (page.clone(), read(&page).split("```").step_by(2).collect())).collect()
}

#[test]
fn relative_links_lead_to_a_file_and_a_heading() {
    let mut count = 0;
    for (page, text) in pages() {
        for target in targets(&text) {
            // Rustdoc checks the links between the pages that it shows.
            if target.contains("://")
                || target.starts_with("crate::")
                || target.starts_with("mailto:")
            {
                continue;
            }
            count += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let other = workspace().join(&page).parent().unwrap().join(file);
            let file = if file.is_empty() { workspace().join(&page) } else { other };
            assert!(file.exists(), "{page}: {target}: there is no such file");
            if !heading.is_empty() {
                let text = fs::read_to_string(&file).unwrap();
                let prose = text.split("```").step_by(2).collect::<String>();
                let mut headings = prose.lines().filter(|line| line.starts_with('#'));
                assert!(
                    headings.any(|line| anchor(line.trim_start_matches('#')) == heading),
                    "{page}: {target}: there is no such heading"
                );
            }
        }
    }
    assert!(count > 60, "the links were not found: {count}");
    assert_eq!(
        anchor(" Sockets that are closed by `close(2)`"),
        "sockets-that-are-closed-by-close2"
    );
}

/// A reference without its definition is shown with its brackets.
#[test]
fn references_of_the_readme_are_defined() {
    let readme = read("README.md");
    let is_defined = |name: &str| readme.contains(&format!("\n[{name}]: "));
    let prose = readme.split("```").step_by(2).collect::<String>();
    for part in prose.split('[').skip(1) {
        let (name, rest) = part.split_once(']').unwrap();
        assert!(rest.starts_with(['(', ':']) || is_defined(name), "[{name}] is not defined");
    }
}

/// Moving the project means changing one line.
#[test]
fn the_projects_address_is_in_one_place() {
    let manifest = read("Cargo.toml");
    let repository = value(&manifest, "repository");
    let place = repository.split_once("://").unwrap().1;
    let name = place.split_once('/').unwrap().1;
    for file in files() {
        // Results name the command that created them, and plots are not text.
        let Ok(text) = fs::read_to_string(workspace().join(&file)) else { continue };
        let has = |line: &str| line.contains(place) || line.contains(&format!("com/{name}"));
        let found = text.lines().filter(|line| has(line)).count();
        assert_eq!(found, usize::from(file == "Cargo.toml"), "{file} names {place}");
    }
}

/// Until the version is in the registry, the README names a path.
#[test]
fn the_readme_has_the_dependency_that_can_be_had() {
    let (readme, manifest) = (read("README.md"), read("Cargo.toml"));
    let line = readme.lines().find(|line| line.starts_with("completion-port = ")).unwrap();
    let version = value(&manifest, "version");
    let released = read("CHANGELOG.md").lines().any(|line| {
        line.strip_prefix("## ")
            .is_some_and(|line| line.trim_matches(['[', ']']).starts_with(version))
            && !line.contains("nreleased")
    });
    if released {
        let minor = version.rsplit_once('.').unwrap().0;
        assert_eq!(line, format!("completion-port = \"{minor}\""));
    } else {
        let path = line.strip_prefix("completion-port = { path = \"../completion-port/");
        let path = path.unwrap().strip_suffix("\" }").unwrap();
        assert!(workspace().join(path).join("Cargo.toml").exists(), "{path}");
    }
}

/// The names of raw results and plots in a text, without the word that replaces one.
fn results(text: &str) -> Vec<&str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let names = text.split(|c| !is_of_name(c)).map(|name| name.trim_end_matches('.'));
    let names = names.filter(|name| name.ends_with(".json") || name.ends_with(".svg"));
    names.filter(|name| !name.starts_with("FILE.")).collect()
}

/// A figure follows from a file that can be looked at, and no file is kept from which none does.
#[test]
fn the_papers_name_the_results_that_there_are() {
    let folder = workspace().join("bench/results");
    let files: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".md"))
        .collect();
    assert!(files.len() > 10, "{files:?}");
    let papers = [
        "README.md",
        "crates/completion-port/docs/COMPARE.md",
        "crates/completion-port/docs/GUIDE.md",
        "bench/results/README.md",
        "bench/results/RUNS.md",
    ];
    let texts = papers.map(|paper| fs::read_to_string(workspace().join(paper)).unwrap());
    for (paper, text) in papers.iter().zip(&texts) {
        for name in results(text) {
            assert!(files.iter().any(|file| file == name), "{paper}: there is no {name}");
        }
    }
    for file in &files {
        let is_named = texts.iter().any(|text| results(text).contains(&&**file));
        assert!(is_named, "{file}: no figure of the papers is said to be of this run");
    }
}

/// The anchor of a heading in links within a page.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}
