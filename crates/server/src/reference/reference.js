// What the reference page can do beyond being read: search, the language of all
// examples at once, copying, and the current place in the list.
'use strict';

const MENU = document.getElementById('menu');
const OBJECTS = document.getElementById('object-list');
const entries = [...MENU.querySelectorAll('li > a')].map((link) => {
  const target = document.getElementById(link.hash.slice(1));
  const about = target.querySelector('.about') ?? target.querySelector('h3');
  return { link, target, text: `${link.hash} ${about.textContent}`.toLowerCase() };
});

// ------------------------------------------------------------------ search

const search = document.getElementById('search');
const state = document.getElementById('search-state');
const isNarrow = matchMedia('(max-width: 860px)');

function matching(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return entries.filter(({ text }) => words.every((word) => text.includes(word)));
}

function filter() {
  const query = search.value.trim();
  const found = new Set(matching(query));
  for (const entry of entries) {
    entry.link.parentElement.hidden = !found.has(entry);
  }
  for (const group of MENU.querySelectorAll('.group')) {
    group.hidden = query !== '' && !group.querySelector('li:not([hidden])');
  }
  document.getElementById('no-match').hidden = found.size > 0;
  state.textContent = query === '' ? '' : `${found.size} found`;
  OBJECTS.open = query !== '' && OBJECTS.querySelector('li:not([hidden])') !== null;
  if (isNarrow.matches) MENU.open = query !== '';
}

document.getElementById('search-form').hidden = false;
search.addEventListener('input', filter);
document.getElementById('search-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const [first] = matching(search.value.trim());
  if (first) first.link.click();
});
document.addEventListener('keydown', (event) => {
  const isTyping = event.target instanceof HTMLInputElement && event.target.type !== 'radio';
  if (event.key === '/' && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
  } else if (event.key === 'Escape' && event.target === search) {
    search.value = '';
    filter();
  }
});
MENU.addEventListener('click', (event) => {
  if (event.target.closest('a') && isNarrow.matches) MENU.open = false;
});

// ---------------------------------------------------------------- examples

const LANGUAGE = 'keepsake-reference-language';

function choose(language) {
  for (const input of document.querySelectorAll(`.tabs input[value="${CSS.escape(language)}"]`)) {
    input.checked = true;
  }
}

// A browser may forbid storage; then the choice lasts as long as the page.
function stored() {
  try {
    return localStorage.getItem(LANGUAGE);
  } catch {
    return null;
  }
}

document.addEventListener('change', (event) => {
  if (!event.target.matches('.tabs input')) return;
  // The examples above may become shorter or longer: the chosen one stays in place.
  const before = event.target.parentElement.getBoundingClientRect().top;
  choose(event.target.value);
  scrollBy(0, event.target.parentElement.getBoundingClientRect().top - before);
  try {
    localStorage.setItem(LANGUAGE, event.target.value);
  } catch {
    // As above.
  }
});
const language = stored();
if (language !== null) choose(language);

if (navigator.clipboard) {
  for (const tabs of document.querySelectorAll('.tabs')) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'copy';
    button.textContent = 'Copy';
    button.addEventListener('click', async () => {
      const shown = [...tabs.querySelectorAll('.code')].find((code) => code.offsetParent !== null);
      await navigator.clipboard.writeText(shown.textContent);
      button.textContent = 'Copied';
      setTimeout(() => { button.textContent = 'Copy'; }, 2000);
    });
    tabs.classList.add('with-copy');
    tabs.append(button);
  }
}

// ------------------------------------------------------------ current place

const visible = new Set();
const byTarget = new Map(entries.map((entry) => [entry.target, entry]));
let current;

function mark() {
  const entry = entries.find(({ target }) => visible.has(target));
  if (entry === undefined || entry === current) return;
  current?.link.removeAttribute('aria-current');
  entry.link.setAttribute('aria-current', 'true');
  current = entry;
  const nav = MENU.parentElement;
  if (isNarrow.matches || nav.contains(document.activeElement)) return;
  const [place, list] = [entry.link, nav].map((element) => element.getBoundingClientRect());
  if (place.top < list.top || place.bottom > list.bottom) {
    nav.scrollTop += place.top - list.top - list.height / 2;
  }
}

const observer = new IntersectionObserver((changes) => {
  for (const change of changes) {
    if (change.isIntersecting) visible.add(change.target);
    else visible.delete(change.target);
  }
  mark();
  // Below the place to which a link scrolls, where the article above may still end.
}, { rootMargin: '-80px 0px -60% 0px' });
for (const target of byTarget.keys()) observer.observe(target);
