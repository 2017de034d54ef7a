"use strict";
// Everything shown here was printed by a policy or a program: it enters the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const PAGE = 200;
  const state = { run: null, rows: [], index: -1, step: -1, drawn: 0, turn: 0 };
  let lines = null;

  function make(tag, css, text) {
    const node = document.createElement(tag);
    if (css) node.className = css;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function add(parent, ...children) {
    for (const child of children) if (child) parent.append(child);
    return parent;
  }

  function button(text, act) {
    const node = make("button", "", text);
    node.type = "button";
    node.addEventListener("click", act);
    return node;
  }

  const words = (kind, name) => data[kind][name] || name.replaceAll("_", " ");
  const count = (number) => number.toLocaleString("en");
  const nameOf = (row) => (row.sample ? `${row.id}#${row.sample}` : row.id);
  const titleOf = (row) => row.id + (row.sample ? `, attempt ${row.sample + 1}` : "");
  const placeOf = (row) => `${state.run.folder}/${row.place}`;
  const duration = (seconds) => (seconds < 60 ? `${seconds.toFixed(seconds < 10 ? 1 : 0)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`);

  function rowsOf(run) {
    if (Array.isArray(run.rows[0])) {
      const rank = { infra_error: 1, resolved: 2 };
      run.rows = run.rows.map((row) => Object.fromEntries(row.map((value, k) => [data.columns[k], value])));
      run.rows.sort((one, other) => (rank[one.status] || 0) - (rank[other.status] || 0));
    }
    return run.rows;
  }

  // One packed attempt: a line of base64, under it zlib, under that JSON. Returned as JSON text.
  async function unpack(run, row) {
    lines = lines || at("packed").textContent.split("\n");
    const bytes = Uint8Array.from(atob(lines[run.first + row.packed]), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  function badge(status) {
    const css = status === "resolved" ? "good" : status === "infra_error" ? "other" : "bad";
    return make("span", "badge " + css, words("statuses", status));
  }

  function fill(select, options, chosen) {
    select.replaceChildren(...options.map(([value, text]) => {
      const option = make("option", "", text);
      option.value = value;
      return option;
    }));
    if (options.some(([value]) => value === chosen)) select.value = chosen;
  }

  function diff(text) {
    const box = make("pre", "diff");
    for (const line of text.replace(/\n$/, "").split("\n")) {
      const css = /^(\+\+\+|---|@@|diff |index )/.test(line) ? "at" : line[0] === "+" ? "add" : line[0] === "-" ? "del" : "";
      add(box, make("span", css, line), "\n");
    }
    return box;
  }

  function taken(step) {
    const parts = [];
    if (step.model_seconds !== undefined) parts.push(`model ${duration(step.model_seconds)}`);
    if (step.tokens) parts.push(`${count(step.tokens[0])} tokens read, ${count(step.tokens[1])} written${step.thought_tokens ? ` (${count(step.thought_tokens)} thoughts)` : ""}`);
    if (step.command_seconds !== undefined) parts.push(`command ${duration(step.command_seconds)}`);
    if (step.cost) parts.push(`$${step.cost.toFixed(4)}`);
    return parts.length ? make("p", "taken", parts.join(" \u00b7 ")) : null;
  }

  function stepItem(step, number) {
    const item = make("li", "step");
    if (step.left_out) return add(item, make("p", "say", `${step.left_out} steps are left out here.`));
    add(item, make("span", "no", String(number)), taken(step));
    if (step.thoughts) add(item, details("Thoughts", make("p", "say", step.thoughts)));
    if (step.refused) {
      add(item, make("p", "refusal", "Nothing was run: the agent refused this answer, because it did not hold exactly one command."));
      add(item, make("pre", "refused", step.say || "(no text is kept of this answer)"));
    } else if (step.say) add(item, make("p", "say", step.say));
    step.commands.forEach((command, k) => {
      const idle = (step.not_run || []).includes(k);
      if (idle) add(item, make("p", "refusal", "Not run: the attempt had ended before this command."));
      add(item, make("pre", idle ? "refused" : "command", command));
    });
    for (const text of step.observations) {
      if (step.refused) add(item, make("p", "taken", "What the agent replied:"));
      add(item, make("pre", "observation", text || "(no output)"));
    }
    return item;
  }

  function stepList(steps) {
    const list = make("ol", "steps");
    let number = 0;
    for (const step of steps) {
      number += step.left_out || 1;
      add(list, stepItem(step, number));
    }
    return list;
  }

  function testList(group) {
    const list = make("ul", "tests");
    for (const [name, passed] of group.named) {
      add(list, add(make("li"), make("span", passed ? "pass" : "fail", passed ? "pass" : "fail"), make("code", "", name)));
    }
    const more = group.total - group.named.length;
    if (more) add(list, add(make("li"), make("span"), make("span", "muted", `and ${count(more)} more`)));
    return list;
  }

  function details(title, body) {
    return add(make("details"), make("summary", "", title), body);
  }

  // Browsers give pages from files no clipboard in some settings; then the text is marked for the user to copy.
  function copier(label, text, source) {
    const node = button(label, async () => {
      try {
        await navigator.clipboard.writeText(text());
        node.textContent = "Copied";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(source());
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        node.textContent = document.execCommand("copy") ? "Copied" : "Marked: press Ctrl+C";
      }
      setTimeout(() => { node.textContent = label; }, 2000);
    });
    node.className = "copy";
    return node;
  }

  function raw(record, row) {
    const box = make("pre", "raw"), text = () => JSON.stringify({ ...row, ...record }, null, 2);
    const folded = details("Raw record of this attempt (JSON)", null);
    const filled = () => { if (!box.textContent) box.textContent = text(); return box; };
    folded.addEventListener("toggle", () => { if (folded.open) filled(); });
    const where = make("p", "note", `Here, long texts are cut. The whole trajectory is in ${placeOf(row)}.`);
    return add(folded, where, copier("Copy the record", text, () => { folded.open = true; return filled(); }), box);
  }

  function command(row) {
    const which = [`--policy ${state.run.policy}`, `--subset ${state.run.subset}`];
    if (row.sample) which.push(`--sample ${row.sample}`);
    return `.venv/bin/python -m scripts.show '${row.id.replaceAll("'", "'\\''")}' ${which.join(" ")}`;
  }

  function replay(row) {
    const shown = make("pre", "shell", command(row));
    const text = "This prints all that is kept of the attempt: task, patch, verdict of each test, test output. With --run at the end the patch is tested again in a fresh sandbox.";
    return add(make("div", "replay"), make("h4", "", "See it in the terminal"), shown,
      add(make("p", "note"), copier("Copy the command", () => shown.textContent, () => shown), ` ${text}`));
  }

  function bar() {
    const box = make("div", "bar");
    for (const [text, by] of [["\u2190 Previous", -1], ["Next \u2192", 1]]) {
      const node = button(text, () => choose(state.index + by));
      node.disabled = !state.rows[state.index + by];
      add(box, node);
    }
    return add(box, make("span", "place", `${count(state.index + 1)} of ${count(state.rows.length)}`));
  }

  // The same task as other policies and other attempts left it, each a button that goes there.
  function others(shown) {
    const box = make("p", "facts");
    for (const run of data.runs) {
      if (run.subset !== state.run.subset) continue;
      for (const row of rowsOf(run).filter((each) => each.id === shown.id && each !== shown)) {
        const which = `${run.label}${row.sample ? `, attempt ${row.sample + 1}` : ""}`;
        const node = button("", () => { at("policy").value = run.policy; clear(); refresh(nameOf(row)); });
        add(box, add(node, make("span", "", `same task, ${which}: `), badge(row.status)));
      }
    }
    return box.children.length ? box : null;
  }

  function patchOf(record, row) {
    if (record.patch) return diff(record.patch);
    if (row.status === "infra_error") return make("p", "note", "There is no patch: the attempt was lost to infrastructure.");
    if (row.outcome === "submitted") return make("p", "note", "The policy submitted without having changed any file. There was nothing to test.");
    return make("p", "note", `There is no patch, since the policy did not submit: ${words("outcomes", row.outcome)}. There was nothing to test.`);
  }

  function body(box, record, row) {
    if (record.system) add(box, details("System prompt", make("pre", "", record.system)));
    if (record.prompt) add(box, make("h4", "", "Task as the policy was given it"), make("pre", "", record.prompt));
    add(box, make("h4", "", "Steps"), record.steps.length ? stepList(record.steps) : make("p", "note", "The policy said nothing."));
    add(box, make("h4", "", "Patch"), patchOf(record, row));
    for (const group of record.tests) {
      const told = group.group === "FAIL_TO_PASS" ? "tests that the fix should make pass" : group.group === "PASS_TO_PASS" ? "tests that should still pass" : "tests";
      add(box, make("h4", "", `${group.group} (${told}): ${count(group.passed)} of ${count(group.total)} pass`), testList(group));
    }
    if (!record.tests.length) add(box, make("h4", "", "Tests"), make("p", "note", "No test has a verdict."));
    if (record.log) {
      const log = make("pre", "observation", record.log);
      add(box, make("h4", "", "End of the test output"), log);
      log.scrollTop = log.scrollHeight;
    }
    if (record.bug) add(box, details("The change that introduced the bug", diff(record.bug)));
    add(box, raw(record, row));
  }

  async function show(row) {
    const turn = ++state.turn, run = state.run;
    const title = make("h3", "instance", titleOf(row));
    title.id = "instance";
    const facts = add(make("p", "facts"), badge(row.status), make("span", "", words("outcomes", row.outcome)),
      make("span", "", `${count(row.turns)} turns`));
    if (row.seconds !== null) add(facts, make("span", "", `tests took ${duration(row.seconds)}`));
    for (const text of [row.repo, row.what]) if (text) add(facts, make("code", "", text));
    const box = at("trajectory"), rest = make("div", "rest");
    box.replaceChildren();
    add(box, bar(), title, facts, others(row));
    if (row.reason) add(box, make("p", "note", row.reason));
    add(box, rest, replay(row));
    if (row.packed < 0) {
      add(rest, make("p", "note", `The steps of this attempt are not in the page, to keep it small. They are in ${placeOf(row)}.`));
      return;
    }
    const text = await unpack(run, row).catch((error) => JSON.stringify({ fault: String(error) }));
    if (turn !== state.turn) return;
    const record = JSON.parse(text);
    if (record.fault) add(rest, make("p", "note warn", `The steps could not be unpacked; a browser of 2023 or later can do it (${record.fault}).`));
    else body(rest, record, row);
  }

  function choose(index, keepFocus) {
    if (!state.rows[index]) return;
    state.index = index;
    state.step = -1;
    while (state.drawn <= index) more();
    show(state.rows[index]);
    at("list").querySelectorAll("button.row").forEach((node, k) => {
      node.setAttribute("aria-current", String(k === index));
      if (k === index) reveal(node);
    });
    history.replaceState(null, "", "#t=" + [state.run.subset, state.run.policy, nameOf(state.rows[index])].map(encodeURIComponent).join("/"));
    if (!keepFocus) at("trajectory").focus({ preventScroll: true });
  }

  function reveal(node) {
    const list = at("list");
    const top = node.offsetTop - list.offsetTop;
    if (top < list.scrollTop || top + node.offsetHeight > list.scrollTop + list.clientHeight) {
      list.scrollTop = top - list.clientHeight / 2;
    }
  }

  // The next PAGE rows of the list, and a button for those after them.
  function more() {
    const list = at("list"), start = state.drawn;
    if (list.lastElementChild && list.lastElementChild.className === "more") list.lastElementChild.remove();
    state.drawn = Math.min(state.rows.length, start + PAGE);
    for (let index = start; index < state.drawn; index += 1) {
      const row = state.rows[index], node = button("", () => choose(index));
      node.className = "row";
      node.title = titleOf(row);
      const short = row.id.split(".").slice(-1)[0].replace("func_pm_", "") + (row.sample ? ` #${row.sample + 1}` : "");
      add(list, add(make("li"), add(node, badge(row.status), make("span", "id", short))));
    }
    const left = state.rows.length - state.drawn;
    if (left) add(list, add(make("li", "more"), button(`Show ${count(Math.min(PAGE, left))} more of ${count(left)}`, more)));
  }

  function fits(row) {
    const [kind, name] = at("status").value.split(":"), repo = at("repo").value;
    return (!kind || row[kind] === name) && (!repo || row.repo === repo);
  }

  async function refresh(wanted) {
    const turn = ++state.turn, run = data.runs.find((each) => each.subset === at("subset").value && each.policy === at("policy").value);
    const part = at("search").value.trim().toLowerCase(), known = rowsOf(run).filter(fits);
    const named = (row) => [nameOf(row), row.what, row.reason].some((text) => text.toLowerCase().includes(part));
    let rows = known.filter(named);
    if (part && at("deep").checked) {
      const needle = JSON.stringify(part).slice(1, -1), inside = [];
      for (const [number, row] of known.entries()) {
        if (number % 50 === 0) at("count").textContent = `Searching: ${count(number)} of ${count(known.length)}`;
        if (named(row) || (row.packed >= 0 && (await unpack(run, row)).toLowerCase().includes(needle))) inside.push(row);
        if (turn !== state.turn) return;
      }
      rows = inside;
    }
    Object.assign(state, { run, rows, index: -1, drawn: 0 });
    const listed = rowsOf(run).length < run.total ? `; ${count(run.total)} in all` : "";
    at("count").textContent = `${count(rows.length)} of ${count(rowsOf(run).length)} attempts${listed}, failures first`;
    at("list").replaceChildren();
    more();
    const index = Math.max(0, rows.findIndex((row) => nameOf(row) === wanted));
    if (rows.length) choose(index, true);
    else at("trajectory").replaceChildren(make("p", "note", "No attempt here fits the filter."));
  }

  function policies(chosen) {
    const runs = data.runs.filter((run) => run.subset === at("subset").value);
    fill(at("policy"), runs.map((run) => [run.policy, run.label]), chosen);
  }

  function counted(rows, field) {
    const counts = {};
    for (const row of rows) counts[row[field]] = (counts[row[field]] || 0) + 1;
    return Object.keys(counts).sort().map((name) => [name, counts[name]]);
  }

  // What can be chosen of this run, with its counts; the present choices stay where they are still there.
  function choices() {
    const rows = rowsOf(data.runs.find((each) => each.subset === at("subset").value && each.policy === at("policy").value));
    const ends = [["status", "statuses", ""], ["outcome", "outcomes", "ended: "]].flatMap(([field, kind, before]) =>
      counted(rows, field).map(([name, many]) => [`${field}:${name}`, `${before}${words(kind, name)} (${count(many)})`]));
    fill(at("status"), [["", "any"], ...ends], at("status").value);
    fill(at("repo"), [["", "any"], ...counted(rows, "repo").map(([name, many]) => [name, `${name} (${count(many)})`])], at("repo").value);
  }

  function clear() {
    at("status").value = at("repo").value = at("search").value = "";
    choices();
  }

  function current() {
    return state.rows[state.index] ? nameOf(state.rows[state.index]) : "";
  }

  function moveStep(by) {
    const steps = [...at("trajectory").querySelectorAll(".step")];
    const next = Math.min(steps.length - 1, Math.max(0, state.step + by));
    if (!steps[next]) return;
    if (steps[state.step]) steps[state.step].removeAttribute("aria-current");
    state.step = next;
    steps[next].setAttribute("aria-current", "step");
    steps[next].scrollIntoView({ block: "nearest" });
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const box = at("viewer").getBoundingClientRect();
    if (box.bottom < 0 || box.top > innerHeight) return;
    const acts = { ArrowLeft: () => choose(state.index - 1), ArrowRight: () => choose(state.index + 1), j: () => moveStep(1),
      k: () => moveStep(-1), "/": () => at("search").focus() };
    if (!acts[event.key] || event.target.closest(".scroll")) return;
    event.preventDefault();
    acts[event.key]();
  }

  function start() {
    const [subset, policy, name] = location.hash.startsWith("#t=") ? location.hash.slice(3).split("/").map(decodeURIComponent) : [];
    fill(at("subset"), [...new Map(data.runs.map((run) => [run.subset, run.subset + (run.scored ? "" : " (trained on)")]))], subset);
    policies(policy || data.opens);
    clear();
    at("subset").addEventListener("change", () => { policies(at("policy").value); choices(); refresh(current()); });
    at("policy").addEventListener("change", () => { choices(); refresh(current()); });
    for (const id of ["status", "repo", "deep"]) at(id).addEventListener("change", () => refresh(current()));
    at("search").addEventListener("input", () => refresh(current()));
    at("controls").addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", keys);
    at("viewer").hidden = false;
    refresh(name);
    if (name) at("trajectories").scrollIntoView({ behavior: "instant" });
  }

  if (data.runs.length) start();
})();
