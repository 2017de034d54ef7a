"use strict";
// Everything shown here was printed by a policy or a program: it enters the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const state = { run: null, rows: [], index: -1, step: -1 };

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

  function words(name) {
    return name.replaceAll("_", " ");
  }

  function badge(status) {
    const css = status === "resolved" ? "good" : status === "infra_error" ? "other" : "bad";
    return make("span", "badge " + css, words(status));
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

  function stepItem(step, number) {
    const item = make("li", "step");
    if (step.left_out) return add(item, make("p", "say", `${step.left_out} steps left out here`));
    add(item, make("span", "no", String(number)));
    if (step.say) add(item, make("p", "say", step.say));
    for (const command of step.commands) add(item, make("pre", "command", command));
    for (const text of step.observations) add(item, make("pre", "observation", text || "(no output)"));
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
    if (more) add(list, add(make("li"), make("span"), make("span", "muted", `and ${more} more`)));
    return list;
  }

  function details(title, body) {
    return add(make("details"), make("summary", "", title), body);
  }

  function bar() {
    const box = make("div", "bar");
    for (const [text, by] of [["\u2190 Previous", -1], ["Next \u2192", 1]]) {
      const button = make("button", "", text);
      button.type = "button";
      button.disabled = !state.rows[state.index + by];
      button.addEventListener("click", () => choose(state.index + by));
      add(box, button);
    }
    return add(box, make("span", "place", `${state.index + 1} of ${state.rows.length}`));
  }

  function taskOf(row) {
    return row.task || row.id;
  }

  // The same task as other policies and other attempts left it, each a button that goes there.
  function others(shown) {
    const box = make("p", "facts");
    for (const run of data.runs) {
      if (run.subset !== state.run.subset) continue;
      for (const row of run.shown.filter((each) => taskOf(each) === taskOf(shown) && !(run === state.run && each === shown))) {
        const which = `${run.label}${row.sample ? `, attempt ${row.sample + 1}` : ""}`;
        const button = add(make("button"), make("span", "", `same task, ${which}: `), badge(row.status));
        button.type = "button";
        button.addEventListener("click", () => { at("policy").value = run.policy; statuses(""); refresh(row.id); });
        add(box, button);
      }
    }
    return box.children.length ? box : null;
  }

  function show(row) {
    const task = data.tasks[state.run.subset][taskOf(row)] || {};
    const title = make("h3", "instance", taskOf(row) + (row.sample ? `, attempt ${row.sample + 1}` : ""));
    title.id = "instance";
    const facts = add(make("p", "facts"), badge(row.status), make("span", "", `rollout ended as ${words(row.outcome)}`),
      make("span", "", `${row.turns} turns`));
    for (const text of [task.op, task.function]) if (text) add(facts, make("code", "", text));
    const box = at("trajectory");
    box.replaceChildren();
    add(box, bar(), title, facts, others(row));
    if (row.reason) add(box, make("p", "note", row.reason));
    if (row.prompt) add(box, make("h4", "", "Issue"), make("pre", "", row.prompt));
    add(box, make("h4", "", "Steps"), row.steps.length ? stepList(row.steps) : make("p", "note", "No turn was taken."));
    add(box, make("h4", "", "Patch"), row.patch ? diff(row.patch) : make("p", "note", "The patch is empty."));
    for (const group of row.tests) {
      add(box, make("h4", "", `${group.group}: ${group.passed} of ${group.total} pass`), testList(group));
    }
    if (!row.tests.length) add(box, make("h4", "", "Tests"), make("p", "note", "No test has a verdict."));
    if (task.bug) add(box, details("The change that introduced the bug", diff(task.bug)));
  }

  function choose(index, keepFocus) {
    if (!state.rows[index]) return;
    state.index = index;
    state.step = -1;
    show(state.rows[index]);
    at("list").querySelectorAll("button").forEach((button, k) => {
      button.setAttribute("aria-current", String(k === index));
      if (k === index) reveal(button);
    });
    history.replaceState(null, "", "#t=" + [state.run.subset, state.run.policy, state.rows[index].id].map(encodeURIComponent).join("/"));
    if (!keepFocus) at("trajectory").focus({ preventScroll: true });
  }

  function reveal(button) {
    const list = at("list");
    const top = button.offsetTop - list.offsetTop;
    if (top < list.scrollTop || top + button.offsetHeight > list.scrollTop + list.clientHeight) {
      list.scrollTop = top - list.clientHeight / 2;
    }
  }

  function refresh(wanted) {
    state.run = data.runs.find((run) => run.subset === at("subset").value && run.policy === at("policy").value);
    const status = at("status").value, part = at("search").value.trim().toLowerCase();
    const keep = (row) => (!status || row.status === status) && row.id.toLowerCase().includes(part);
    state.rows = state.run.shown.filter(keep);
    state.index = -1;
    at("count").textContent = `${state.rows.length} of ${state.run.shown.length} shown here; ${state.run.total} in all`;
    at("list").replaceChildren(...state.rows.map((row, index) => {
      const button = make("button");
      button.type = "button";
      add(button, badge(row.status), make("span", "id", row.id.split(".").slice(-1)[0].replace("func_pm_", "")));
      button.title = row.id;
      button.addEventListener("click", () => choose(index));
      return add(make("li"), button);
    }));
    const index = Math.max(0, state.rows.findIndex((row) => row.id === wanted));
    if (state.rows.length) choose(index, true);
    else at("trajectory").replaceChildren(make("p", "note", "No trajectory here fits the filter."));
  }

  function policies(chosen) {
    const runs = data.runs.filter((run) => run.subset === at("subset").value);
    fill(at("policy"), runs.map((run) => [run.policy, run.label]), chosen);
  }

  function statuses(chosen) {
    const run = data.runs.find((each) => each.subset === at("subset").value && each.policy === at("policy").value);
    const counts = {};
    for (const row of run.shown) counts[row.status] = (counts[row.status] || 0) + 1;
    fill(at("status"), [["", "any"], ...Object.keys(counts).sort().map((name) => [name, `${words(name)} (${counts[name]})`])], chosen);
  }

  function current() {
    return state.rows[state.index] ? state.rows[state.index].id : "";
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
    const [subset, policy, id] = location.hash.startsWith("#t=") ? location.hash.slice(3).split("/").map(decodeURIComponent) : [];
    fill(at("subset"), [...new Map(data.runs.map((run) => [run.subset, run.subset + (run.scored ? "" : " (trained on)")]))], subset);
    policies(policy || data.opens);
    statuses("");
    at("subset").addEventListener("change", () => { policies(at("policy").value); statuses(at("status").value); refresh(current()); });
    at("policy").addEventListener("change", () => { statuses(at("status").value); refresh(current()); });
    at("status").addEventListener("change", () => refresh(current()));
    at("search").addEventListener("input", () => refresh(current()));
    at("controls").addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", keys);
    at("viewer").hidden = false;
    refresh(id);
    if (id) at("trajectories").scrollIntoView({ behavior: "instant" });
  }

  if (data.runs.length) start();
})();
