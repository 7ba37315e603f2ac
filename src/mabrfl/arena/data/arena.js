"use strict";
const byId = (id) => document.getElementById(id);
const make = (tag, text, className) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
};
const shown = (value, digits = 1) => (value === null || value === undefined ? "\u2014" : value.toFixed(digits));

/* The tables: a heading sorts by its column; what has no value comes last. */
document.querySelectorAll(".board").forEach((board) => board.querySelectorAll("thead th").forEach((head, place) => {
  head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    board.querySelectorAll("thead th").forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.children[place].dataset.value;
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      const order = place === 0 ? x.localeCompare(y) : Number(x) - Number(y);
      return down ? -order : order;
    };
    const body = board.tBodies[0];
    [...body.rows].sort(compare).forEach((row) => body.append(row));
  });
}));

/* The matrix of a tier: one value per defense and attack, of the runs that the controls choose. The identifiers of a
   larger tier have an end of their own. It may be incomplete: then only seeds with all of these runs count, and what is
   known of others has a star. */
const showTier = (data, end, address) => {
  const chooser = (id) => byId(id + end);
  const score = (column, run, figure) => {
    const runs = column.runs;
    if (!runs.key || runs.key[run] === null || (runs.error && runs.error[run])) return null;
    if (figure !== "lost") return runs[figure] ? runs[figure][run] : null;
    const clean = data.clean[run];
    return clean === null ? null : clean - ((runs.accuracy && runs.accuracy[run]) || 0);
  };
  const chosen = (attack, task, share) => data.scenarios.flatMap((one, place) =>
    (attack === null ? one[3] >= 0 : one[3] === attack) && (task === "" || one[1] === Number(task)) &&
    (share === "" || one[2] === data.shares[Number(share)]) ? [place] : []);
  const combined = (values, how) => {
    const known = values.filter((value) => value !== null && value !== undefined);
    if (!known.length) return null;
    return how === "worst" ? Math.max(...known) : known.reduce((sum, value) => sum + value, 0) / known.length;
  };
  const done = (column, run) => score(column, run, "lost") !== null;
  const complete = (column, runs) => {
    if (!data.partial) return runs;
    const open = new Set(runs.filter((run) => !done(column, run)).map((run) => data.scenarios[run][0]));
    return runs.filter((run) => !open.has(data.scenarios[run][0]));
  };
  const cellOf = (value, action, side, star) => {
    const cell = make("td", undefined, side ? "side" : "");
    if (value === null) { cell.classList.add("none"); cell.append(make("span", "")); return cell; }
    cell.classList.add("h" + Math.max(0, Math.min(8, Math.floor(value / 10))));
    const inner = make(action ? "button" : "span", value.toFixed(0).replace("-0", "0") + (star ? "*" : ""));
    if (action) { inner.type = "button"; inner.addEventListener("click", action); }
    cell.append(inner);
    return cell;
  };
  const draw = () => {
    const [figure, share, task, how] = ["figure", "share", "task", "combine"].map((id) => chooser(id).value);
    const table = chooser("matrix");
    table.textContent = "";
    const head = table.createTHead().insertRow();
    const worst = make("th");
    worst.append(make("span", "worst case"));
    head.append(make("th", "defense", "stay"), make("th", "place"), worst);
    for (const attack of data.attacks) {
      const th = make("th", undefined, attack.own ? "own" : "");
      th.append(make("span", attack.label));
      head.append(th);
    }
    const body = table.createTBody();
    for (const column of data.columns) {
      const row = body.insertRow();
      const all = complete(column, chosen(null, task, share)).map((run) => score(column, run, figure));
      const standing = Array.isArray(column.place) ? column.place[Number(task)] : column.place;
      row.append(make("th", column.label, column.own ? "stay own" : "stay"), make("td", standing));
      row.append(cellOf(combined(all, "worst"), null, true));
      data.attacks.forEach((attack, place) => {
        const runs = chosen(place, task, share);
        const whole = complete(column, runs);
        const value = combined((whole.length ? whole : runs).map((run) => score(column, run, figure)), how);
        const cell = cellOf(value, () => open(column, place, task, share), false, !whole.length);
        const count = data.partial ? ": " + runs.filter((run) => done(column, run)).length + " of " + runs.length + " runs" : "";
        cell.title = column.label + ", " + attack.label + count;
        row.append(cell);
      });
    }
  };

  /* The runs of a cell. */
  const open = (column, attack, task, share) => {
    byId("runs-title").textContent = column.label + " under " + data.attacks[attack].label;
    const list = byId("runs-list");
    list.textContent = "";
    for (const run of chosen(attack, task, share)) {
      const [seed, place, portion] = data.scenarios[run];
      const name = data.tasks[place].label + ", " + Number((100 * portion).toPrecision(3)) + " % attackers, seed " + seed;
      const runs = column.runs;
      const details = make("details");
      details.open = !list.childElementCount;
      if (!runs.key || runs.key[run] === null) { details.append(make("summary", name + ": missing")); list.append(details); continue; }
      const failed = runs.error && runs.error[run];
      const words = ["mabrfl run", data.tasks[place].words, column.words, data.attacks[attack].words, "--attackers " + portion, "--seed " + seed];
      const facts = failed ? "failed: " + failed : "accuracy " + shown(runs.accuracy && runs.accuracy[run], 2) + " %, lost " +
        shown(score(column, run, "lost")) + " points";
      details.append(make("summary", name + ": " + facts));
      const lines = [["success of the goal, %", "success"], ["honest updates rejected, %", "rejected"], ["attackers' updates rejected, %", "caught"]]
        .map(([title, key]) => title + ": " + shown(runs[key] && runs[key][run]));
      details.append(make("p", lines.join("; ") + "; key " + runs.key[run]));
      details.append(make("pre", words.join(" \\\n  ")));
      details.append(make("p", "The words are the settings of the run; the command repeats it.", "note"));
      list.append(details);
    }
    history.replaceState(null, "", "#" + address + [column.label, data.attacks[attack].label].map(encodeURIComponent).join("/"));
    byId("runs").showModal();
  };
  ["figure", "share", "task", "combine"].forEach((id) => chooser(id).addEventListener("change", draw));
  draw();

  /* An address such as page.html#krum/lie opens the runs of that cell; of a larger tier, its name comes first. */
  const follow = () => {
    if (!location.hash.startsWith("#" + address)) return;
    const [defense, label] = location.hash.slice(1 + address.length).split("/").map(decodeURIComponent);
    const column = data.columns.find((one) => one.label === defense);
    const attack = data.attacks.findIndex((one) => one.label === label);
    if (column && attack >= 0) open(column, attack, "", "");
  };
  window.addEventListener("hashchange", follow);
  follow();
};
const given = (id) => JSON.parse(byId(id).textContent);
byId("runs").addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
showTier(given("data"), "", "");
if (byId("data-larger")) showTier(given("data-larger"), "-larger", given("data-larger").name + "/");
