// Keeps the page current: when the server says that something changed, the page is fetched again and what differs is
// taken over, node by node, so that focus, selection and scrolling stay where they are.

const connection = document.getElementById("connection");
const LEAST_MS = 1000; // between two fetches
const MOST_MS = 10000; // after that ages are worth a fetch of their own

let busy = false;
let wanted = false;
let last = 0;

function sync(old, fresh) {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const known = new Map([...old.children].filter((each) => each.id).map((each) => [each.id, each]));
  let at = old.firstChild;
  for (const node of [...fresh.childNodes]) {
    const same = node.id ? known.get(node.id) : at && !at.id && at.nodeName === node.nodeName ? at : null;
    if (!same) {
      old.insertBefore(node, at);
    } else {
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      if (node.nodeType === Node.TEXT_NODE) {
        if (same.data !== node.data) same.data = node.data;
      } else if (!same.isEqualNode(node)) sync(same, node);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

async function refresh() {
  wanted = true;
  if (busy) return;
  busy = true;
  while (wanted && !document.hidden) {
    await new Promise((done) => setTimeout(done, Math.max(0, last + LEAST_MS - Date.now())));
    wanted = false;
    last = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!answer.ok) throw new Error(answer.statusText);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.title = fresh.title;
      for (const old of document.querySelectorAll("[data-live]")) {
        const now = fresh.getElementById(old.id);
        if (now && !old.isEqualNode(now)) sync(old, now);
      }
      filter();
      connected(fresh.getElementById("connection").textContent);
    } catch {
      lost();
    }
  }
  busy = false;
}

function connected(text) {
  connection.textContent = text;
  connection.className = "";
}

function lost() {
  if (connection.className !== "lost") {
    connection.textContent = `not connected; ${connection.textContent}`;
    connection.className = "lost";
  }
}

// --- the filter of the list -----------------------------------------------------------------------------------------

function filter() {
  const field = document.getElementById("filter");
  if (!field) return;
  const rows = document.querySelectorAll("#rows > tr");
  field.closest("label").hidden = rows.length < 8 && !field.value;
  const sought = field.value.trim().toLowerCase();
  for (const row of rows) row.hidden = !row.querySelector("th").textContent.toLowerCase().includes(sought);
}

document.addEventListener("input", (event) => {
  if (event.target.id === "filter") filter();
});

// --- the stream of changes ------------------------------------------------------------------------------------------

let events = null;

function listen() {
  if (events) return;
  events = new EventSource("/events");
  events.addEventListener("change", refresh);
  events.addEventListener("error", lost);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    events?.close();
    events = null;
  } else {
    listen();
    refresh();
  }
});
setInterval(() => {
  if (!document.hidden && Date.now() - last > MOST_MS) refresh();
}, MOST_MS / 2);

filter();
if (!document.hidden) listen();
