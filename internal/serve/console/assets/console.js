// This script keeps an open page up to date. The server renders every page. When the
// event stream reports a change, the script fetches the page again and replaces the
// parts marked data-live. Only the trusted-types policy below can create markup, and
// its input comes from this server.

const policy = self.trustedTypes ? trustedTypes.createPolicy('ambit', { createHTML: (s) => s }) : { createHTML: (s) => s };

function busy(part) {
  const active = document.activeElement;
  return active && part.contains(active) && active.matches('input, textarea, select');
}

async function refresh() {
  let answer;
  try {
    answer = await fetch(location.href, { headers: { Accept: 'text/html' }, cache: 'no-store' });
  } catch {
    return; // the event stream reconnects
  }
  if (!answer.ok) return;
  const next = new DOMParser().parseFromString(policy.createHTML(await answer.text()), 'text/html');
  for (const part of document.querySelectorAll('[data-live]')) {
    const fresh = next.getElementById(part.id);
    const open = fresh?.querySelectorAll('details') ?? [];
    part.querySelectorAll('details').forEach((d, i) => open[i]?.toggleAttribute('open', d.open));
    if (!fresh || busy(part) || fresh.isEqualNode(part)) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement.id : '';
    part.replaceChildren(...fresh.childNodes);
    if (focused) document.getElementById(focused)?.focus();
  }
}

function follow() {
  const alive = document.getElementById('alive');
  let pending = 0;
  let dirty = false;
  const stream = new EventSource(document.body.dataset.livePage);
  const later = () => {
    dirty = true;
    if (document.hidden || pending) return;
    pending = setTimeout(async () => {
      dirty = false;
      await refresh();
      pending = 0;
      if (dirty) later();
    }, 100);
  };
  stream.addEventListener('change', later);
  stream.onopen = () => { if (alive) alive.textContent = 'live'; };
  stream.onerror = () => { if (alive) alive.textContent = 'not connected'; };
  document.addEventListener('visibilitychange', () => { if (!document.hidden && dirty) later(); });
  addEventListener('pagehide', () => stream.close());
}

// The list of tools belongs to the chosen agent.
document.querySelector('form.filter select[name=agent]')?.addEventListener('change', (event) => {
  history.replaceState(null, '', '?agent=' + encodeURIComponent(event.target.value));
  refresh();
});
document.getElementById('login')?.requestSubmit();
document.querySelector('form.try')?.addEventListener('submit', (event) => {
  event.target.querySelector('#busy').hidden = false;
});
if (document.body.hasAttribute('data-live-page')) follow();
