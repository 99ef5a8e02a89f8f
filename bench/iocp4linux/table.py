"""Medians of the records of `compare`, and what the first library has, divided by what each other one has in the same round."""
import collections
import statistics
import sys

COUNTS = ("errors", "warmup_errors", "mismatches", "stalled")
runs = collections.OrderedDict()
failed = collections.Counter()
for line in open(sys.argv[1], encoding="utf-8"):
    fields = dict(word.split("=", 1) for word in line.split("server:")[0].split() if "=" in word)
    key = fields["mode"], int(fields["threads"])
    one = runs.setdefault(key, {}).setdefault(int(fields["round"]), {})
    # A run counts if it has served something and nothing went wrong.
    if "rate" in fields and int(fields["requests"]) > 0 and not any(int(fields[count]) for count in COUNTS):
        one[fields["library"]] = float(fields["rate"]), float(fields["cpu_us"])
    else:
        failed[(*key, fields["library"])] += 1
libraries = sys.argv[2:]
for (mode, threads), rounds in runs.items():
    print(f"{mode}, threads: {threads}")
    for library in libraries:
        good = [one[library] for one in rounds.values() if library in one]
        bad = failed[mode, threads, library]
        if good:
            rate, time = (statistics.median(values) for values in zip(*good))
            print(f"  {library:12} {rate:8.0f} /s, {time:7.2f} us of the server each; {len(good)} runs, {bad} failed")
        else:
            print(f"  {library:12} all {bad} runs failed")
    for other in libraries[1:]:
        both = [(one[libraries[0]], one[other]) for one in rounds.values() if libraries[0] in one and other in one]
        if len(both) < 6:
            print(f"  {len(both)} rounds of both are too few for a ratio")
            continue
        for name, ratios in (
            ("rate", [ours[0] / theirs[0] for ours, theirs in both]),
            ("time", [theirs[1] / ours[1] for ours, theirs in both]),
        ):
            low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
            print(f"  {name}, {libraries[0]} over {other}: {median:.3f} (quartiles {low:.3f} to {high:.3f}), {len(both)} rounds")
