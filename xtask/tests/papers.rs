//! The README, as it is read on the page of a registry, where there is no file beside it; and the runs that papers name.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::fs;
use std::path::Path;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// What stands in parentheses behind brackets, and what is defined by a line that begins with brackets.
fn targets(text: &str) -> Vec<&str> {
    let inline = text.match_indices("](").map(|(at, _)| text[at + 2..].split(')').next().unwrap());
    let is_definition = |line: &&str| line.starts_with('[');
    let defined = text.lines().filter(is_definition).filter_map(|line| line.split_once("]: "));
    inline.chain(defined.map(|(_, target)| target)).collect()
}

/// The file of the workspace to which an absolute link leads, if it leads there.
fn file_of<'t>(target: &'t str, repository: &str) -> Option<&'t str> {
    let path = target.strip_prefix(repository)?;
    let path = ["/blob/main/", "/tree/main/"].iter().find_map(|kind| path.strip_prefix(kind))?;
    path.split('#').next()
}

fn value<'m>(manifest: &'m str, key: &str) -> &'m str {
    let line = manifest.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='));
    line.unwrap().trim().trim_matches('"')
}

#[test]
fn every_link_of_the_readme_is_absolute_and_leads_to_a_file() {
    let read = |file: &str| fs::read_to_string(workspace().join(file)).unwrap();
    let (readme, manifest) = (read("README.md"), read("Cargo.toml"));
    let repository = value(&manifest, "repository");
    let raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/");
    let raw = format!("{raw}/main/");
    let all = targets(&readme);
    assert!(all.len() > 10, "{all:?}");
    for target in &all {
        assert!(target.starts_with("https://"), "{target} leads nowhere on the page of a registry");
        let file = target.strip_prefix(&raw).or_else(|| file_of(target, repository));
        if let Some(file) = file {
            assert!(workspace().join(file).exists(), "{target}: there is no such file");
        } else {
            assert!(!target.starts_with(repository), "{target} is of no known form");
        }
    }
    // A reference without its definition is shown with its brackets.
    let is_defined = |name: &str| readme.contains(&format!("\n[{name}]: "));
    let prose = readme.split("```").step_by(2).collect::<String>();
    for part in prose.split('[').skip(1) {
        let (name, rest) = part.split_once(']').unwrap();
        assert!(rest.starts_with(['(', ':']) || is_defined(name), "[{name}] is not defined");
    }
}

/// As long as the version that the README names is not in the registry, it names the repository.
#[test]
fn the_readme_has_the_dependency_that_can_be_had() {
    let read = |file: &str| fs::read_to_string(workspace().join(file)).unwrap();
    let (readme, manifest) = (read("README.md"), read("Cargo.toml"));
    let line = readme.lines().find(|line| line.starts_with("completion-port = "));
    let version = value(&manifest, "version");
    let released = read("CHANGELOG.md").lines().any(|line| {
        line.strip_prefix("## ")
            .is_some_and(|line| line.trim_matches(['[', ']']).starts_with(version))
            && !line.contains("nreleased")
    });
    let git = format!("completion-port = {{ git = \"{}\" }}", value(&manifest, "repository"));
    if released {
        let minor = version.rsplit_once('.').unwrap().0;
        assert_eq!(line.unwrap(), format!("completion-port = \"{minor}\""));
    } else {
        assert_eq!(line.unwrap(), git);
    }
}

/// The names of raw results and plots in a text, without the word in the place of one.
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
        .filter(|name| name != "README.md")
        .collect();
    assert!(files.len() > 10, "{files:?}");
    let papers = [
        "README.md",
        "crates/completion-port/docs/COMPARE.md",
        "crates/completion-port/docs/GUIDE.md",
        "bench/results/README.md",
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

/// What a link within a page says of a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

#[test]
fn links_within_a_page_lead_to_a_heading() {
    let mut pages = vec![workspace().join("docs/PORTING.md")];
    let docs = fs::read_dir(workspace().join("crates/completion-port/docs")).unwrap();
    pages.extend(docs.map(|entry| entry.unwrap().path()));
    let mut count = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(page).unwrap();
        // Without what stands between fences, where a line may begin so as well.
        let prose = text.split("```").step_by(2).collect::<String>();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        let known: Vec<String> =
            headings.map(|line| anchor(line.trim_start_matches('#'))).collect();
        for target in targets(&prose) {
            let Some(name) = target.strip_prefix('#') else { continue };
            count += 1;
            assert!(known.iter().any(|it| it == name), "{}: no heading #{name}", page.display());
        }
    }
    assert!(count > 20, "the links were not found: {count}");
    assert_eq!(
        anchor(" Sockets that are closed by `close(2)`"),
        "sockets-that-are-closed-by-close2"
    );
}
