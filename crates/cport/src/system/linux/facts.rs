//! Features of Linux for a port, and its limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use completion_port::{BlockDetection, FileEngine, Port};
use rustix::process::{Resource, Rlimit, getrlimit};

/// The kernel's name and version.
pub(crate) fn kernel() -> String {
    word("/proc/sys/kernel/osrelease")
}

/// Facts of this system in addition to those of every system.
pub(crate) fn facts() -> Vec<(&'static str, String)> {
    vec![
        ("io_uring", io_uring()),
        ("switch records", switches()),
        ("perf_event_paranoid", word("/proc/sys/kernel/perf_event_paranoid")),
        ("perf_event_mlock_kb", word("/proc/sys/kernel/perf_event_mlock_kb")),
        ("/proc/self/task/TID/stat", tick()),
        ("system calls filtered", filtered()),
        ("descriptors (RLIMIT_NOFILE)", limit(getrlimit(Resource::Nofile))),
        ("descriptors (fs.nr_open)", word("/proc/sys/fs/nr_open")),
        ("descriptors of all (fs.file-max)", word("/proc/sys/fs/file-max")),
        ("watches (fs.epoll.max_user_watches)", word("/proc/sys/fs/epoll/max_user_watches")),
        ("locked memory (RLIMIT_MEMLOCK)", limit(getrlimit(Resource::Memlock))),
        ("processors online", word("/sys/devices/system/cpu/online")),
        ("quota of the control group", quota()),
    ]
}

/// A file's single word.
fn word(path: &str) -> String {
    match fs::read_to_string(path) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => format!("unknown: {path}: {error}"),
    }
}

fn limit(Rlimit { current, maximum }: Rlimit) -> String {
    let shown = |limit: Option<u64>| limit.map_or_else(|| "no limit".into(), |it| it.to_string());
    format!("{}, at most {}", shown(current), shown(maximum))
}

/// What it means that the shortest wait for 50 microseconds took this long.
pub(crate) fn waits(took: Duration) -> &'static str {
    if took < Duration::from_micros(900) {
        "to the nanosecond (epoll_pwait2)"
    } else {
        "in whole milliseconds: epoll_pwait2 is refused or older than 5.11"
    }
}

/// A port uses it for operations on files that have to wait.
fn io_uring() -> String {
    let builder = Port::builder().file_engine(FileEngine::Ring);
    let use_of_port = match builder.build::<(), ()>() {
        Ok(_) => "a port does operations on files by it".to_owned(),
        Err(error) => format!("threads do operations on files instead: {error}"),
    };
    let switch = match fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
        Err(_) => "this kernel has no switch for it",
        Ok(text) => match text.trim() {
            "0" => "this kernel lets all processes use it",
            "1" => "this kernel lets only a group and administrators use it",
            _ => "this kernel lets no process use it",
        },
    };
    format!("{use_of_port}; {switch}")
}

/// Whether the scheduler's records of a thread's sleeps are available, and if not, why.
fn switches() -> String {
    let builder = Port::builder().block_detection(BlockDetection::Switches);
    let Err(error) = builder.build::<(), ()>() else {
        return "available (perf_event_open)".to_owned();
    };
    let reason = match error.os_code() {
        Some(code) => std::io::Error::from_raw_os_error(code).to_string(),
        None => "the kernel is older than 4.17".to_owned(),
    };
    let paranoid = word("/proc/sys/kernel/perf_event_paranoid");
    let hint = if paranoid.parse().is_ok_and(|level: i32| level > 2) {
        "perf_event_paranoid is above 2"
    } else {
        "a filter of system calls, or the limits of locked memory"
    };
    format!("not available: perf_event_open: {reason} ({hint})")
}

fn tick() -> String {
    match fs::read_to_string("/proc/thread-self/stat") {
        Ok(_) => "readable: threads that sleep are found by the tick".to_owned(),
        Err(error) => format!("{error}: only announced sleeps are known to the tick"),
    }
}

/// Whether a seccomp(2) filter is in force.
fn filtered() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    match mode.map(str::trim) {
        Some("0") => "no".to_owned(),
        Some(_) => "yes (seccomp), as in most containers".to_owned(),
        None => "unknown".to_owned(),
    }
}

/// The strictest limit on processor time among the process's control groups.
fn quota() -> String {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let found = quotas(&groups, Path::new("/sys/fs/cgroup"), |path| fs::read_to_string(path).ok());
    match found.into_iter().reduce(f64::min) {
        Some(processors) => format!("{processors:.2} processors"),
        None => "none".to_owned(),
    }
}

/// The limits in processors, of the groups named in `groups` and their ancestors.
fn quotas(groups: &str, root: &Path, read: impl Fn(PathBuf) -> Option<String>) -> Vec<f64> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let is_old = controllers.split(',').any(|controller| controller == "cpu");
        if !controllers.is_empty() && !is_old {
            continue;
        }
        let root = if is_old { root.join("cpu") } else { root.to_owned() };
        let inner = root.join(path.trim_start_matches('/'));
        for group in inner.ancestors().take_while(|group| group.starts_with(&root)) {
            let figures = if is_old {
                let number = |name| read(group.join(name)).map(|text| text.trim().to_owned());
                number("cpu.cfs_quota_us").zip(number("cpu.cfs_period_us"))
            } else {
                read(group.join("cpu.max")).and_then(|text| {
                    let (quota, period) = text.trim().split_once(' ')?;
                    Some((quota.to_owned(), period.to_owned()))
                })
            };
            let Some((quota, period)) = figures else { continue };
            if let (Ok(quota), Ok(period)) = (quota.parse::<f64>(), period.parse::<f64>())
                && quota > 0.0
                && period > 0.0
            {
                found.push(quota / period);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas_of(groups: &str, files: &[(&str, &str)]) -> Vec<f64> {
        quotas(groups, Path::new("/root"), |path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_quota_of_each_group_around_the_process_counts() {
        let files = [
            ("/root/a/b/cpu.max", "max 100000\n"),
            ("/root/a/cpu.max", "150000 100000\n"),
            ("/root/cpu.max", "400000 100000\n"),
            ("/cpu.max", "1 100000\n"),
        ];
        assert_eq!(quotas_of("0::/a/b\n", &files), [1.5, 4.0]);
        assert!(quotas_of("0::/\n", &[]).is_empty());
    }

    #[test]
    fn the_older_files_are_read_too() {
        let files = [
            ("/root/cpu/a/cpu.cfs_quota_us", "50000\n"),
            ("/root/cpu/a/cpu.cfs_period_us", "100000\n"),
            ("/root/cpu/cpu.cfs_quota_us", "-1\n"),
            ("/root/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quotas_of("5:memory:/a\n4:cpu,cpuacct:/a\n", &files), [0.5]);
    }
}
