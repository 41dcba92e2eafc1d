// Repository Digest: groups commits by kind of change and by author.
//
// The runtime calls handler with the tool's input. It fetches commits only if the
// input contains none, so all functions except fetchCommits are pure.

import { getJSON } from "./http.mjs";

const API = "https://api.github.com";
const PAGE = 100;

// Conventional Commits types, most interesting first.
const KINDS = [
  ["breaking", "Breaking changes"],
  ["feat", "Features"],
  ["fix", "Fixes"],
  ["perf", "Performance"],
  ["docs", "Documentation"],
  ["other", "Everything else"],
];

export async function handler(input = {}) {
  const { owner, repo, days = 7, commits } = input;
  if (Array.isArray(commits)) return digest(commits, "Digest of the given commits");
  if (!owner || !repo) throw new Error("give owner and repo, or the commits themselves");
  const title = `${owner}/${repo}, last ${days} ${days === 1 ? "day" : "days"}`;
  return digest(await fetchCommits(owner, repo, days), title);
}

export function digest(commits, title) {
  const byKind = new Map(KINDS.map(([kind]) => [kind, []]));
  const byAuthor = new Map();
  for (const { sha = "", author, message } of commits) {
    const subject = message.split("\n", 1)[0].trim();
    byKind.get(kindOf(message)).push({ sha: sha.slice(0, 7), subject });
    if (author) byAuthor.set(author, (byAuthor.get(author) ?? 0) + 1);
  }
  const order = new Intl.Collator(process.env.DIGEST_LOCALE || "en");
  const authors = [...byAuthor]
    .map(([name, count]) => ({ name, commits: count }))
    .sort((a, b) => b.commits - a.commits || order.compare(a.name, b.name));
  const groups = KINDS.map(([kind]) => ({ kind, changes: byKind.get(kind) })).filter((g) => g.changes.length);
  const result = { title, total: commits.length, authors, groups };
  return { ...result, markdown: markdown(result) };
}

// kindOf reads "feat(api)!: subject" and the BREAKING CHANGE footer.
export function kindOf(message) {
  const match = /^(\w+)(?:\([^)]*\))?(!)?:\s/.exec(message);
  if (match?.[2] || /^BREAKING[ -]CHANGE: /m.test(message)) return "breaking";
  const kind = match?.[1].toLowerCase();
  return KINDS.some(([name]) => name === kind) && kind !== "breaking" ? kind : "other";
}

function markdown({ title, total, authors, groups }) {
  if (total === 0) return `# ${title}\n\nNo commits.\n`;
  const names = new Map(KINDS);
  const lines = [`# ${title}`, "", total === 1 ? "One commit." : `${total} commits.`, ""];
  for (const { kind, changes } of groups) {
    lines.push(`## ${names.get(kind)}`, "");
    for (const { sha, subject } of changes) lines.push(sha ? `- ${subject} (${sha})` : `- ${subject}`);
    lines.push("");
  }
  if (authors.length) lines.push(`By ${authors.map((a) => `${a.name} (${a.commits})`).join(", ")}.`, "");
  return lines.join("\n");
}

async function fetchCommits(owner, repo, days) {
  const since = new Date(Date.now() - days * 24 * 3600 * 1000).toISOString();
  const most = Math.min(Math.max(parseInt(process.env.DIGEST_MAX_COMMITS, 10) || 300, 1), 500);
  const headers = { Accept: "application/vnd.github+json", "User-Agent": "repository-digest" };
  if (process.env.GITHUB_TOKEN) headers.Authorization = `Bearer ${process.env.GITHUB_TOKEN}`;

  const path = `/repos/${encodeURIComponent(owner)}/${encodeURIComponent(repo)}/commits`;
  const found = [];
  for (let page = 1; found.length < most; page++) {
    const batch = await getJSON(`${API}${path}?since=${since}&per_page=${PAGE}&page=${page}`, headers);
    for (const { sha, commit } of batch) {
      found.push({ sha, author: commit.author?.name, date: commit.author?.date, message: commit.message });
    }
    if (batch.length < PAGE) break;
  }
  return found.slice(0, most);
}
