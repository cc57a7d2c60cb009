// The page of the hunt: one EventSource, and a document that doesn't grow however
// much comes. What comes is noted at once and shown once a frame; rows, cells and
// list items are made once and used again.

const $ = id => document.getElementById(id);
const shownDrops = 10;

// What is known, and whether it has to be shown.
const known = {player: '', total: 0, rank: 0, solved: 0, challenge: null, drops: [], board: null, events: 0};
let drawing = false;

// Where the stream comes from, and when it lately opened or brought something.
let source = null, eventsURL = '', openedAt = 0, heard = false;
// What is being fetched, so that it is fetched once at a time.
let refreshing = false;

const pause = ms => new Promise(done => setTimeout(done, ms));
const jittered = ms => ms * (1 + Math.random() / 2);

// say shows how the connection is.
function say(state, text) {
  $('state').dataset.state = state;
  $('state').textContent = text;
}

// ask sends a request to the game. The answer's body comes with its status.
async function ask(method, path, body) {
  const answer = await fetch(path, {
    method,
    headers: body ? {'Content-Type': 'application/json'} : {},
    body: body && JSON.stringify(body),
  });
  return {status: answer.status, ...await answer.json()};
}

// patiently asks until there is an answer that isn't "later"; told hears what
// was said meanwhile.
async function patiently(method, path, body, told) {
  for (let failed = 0; ; failed++) {
    let wait = Math.min(1000 * 2 ** failed, 20000);
    try {
      const answer = await ask(method, path, body);
      if (answer.status < 500) return answer;
      told(answer);
      if (answer.retry_after) wait = 1000 * answer.retry_after;
    } catch {
      told({error: 'unreachable', why: 'the game does not answer'});
    }
    await pause(jittered(wait));
  }
}

// --- joining ---

async function join(name) {
  const answer = await patiently('POST', '/join', {name}, later => {
    if (later.error === 'waiting-room') say('waiting', `You are in the waiting room: ${later.why}. You will be let in.`);
    else say('waiting', `You can't be let in just now: ${later.why}. Trying again …`);
  });
  if (answer.status !== 200) {
    $('notice').textContent = answer.why;
    say('new', 'Not connected');
    $('join').hidden = false;
    return;
  }
  enter(answer);
}

function enter(me) {
  $('join').hidden = true;
  $('game').hidden = false;
  known.player = me.player;
  eventsURL = me.events;
  learn(me);
  connect();
}

// --- the stream ---

function connect() {
  say('connecting', 'Connecting …');
  heard = false;
  source?.close();
  source = new EventSource(eventsURL, {withCredentials: true});
  source.onopen = () => {
    openedAt = Date.now();
    heard = false;
    // A stream with nothing to say is silent. One that is refused ends soon.
    setTimeout(() => { if (source.readyState === EventSource.OPEN) live(); }, 3000);
  };
  source.onerror = lost;
  source.addEventListener('board', on(b => { known.board = b; }));
  source.addEventListener('drop', on(d => {
    learn({total: d.total, solved: d.challenge, drops: [d, ...known.drops]});
  }));
  source.addEventListener('assignment', on(challenge => learn({challenge})));
  source.addEventListener('resync', on(r => { refresh(r.after_ms); }));
}

// on makes a listener for events that carry JSON.
const on = handle => e => {
  known.events++;
  live();
  handle(JSON.parse(e.data));
  draw();
};

function live() {
  heard = true;
  if ($('state').dataset.state !== 'live') say('live', 'Live');
}

function lost() {
  if (source.readyState === EventSource.CLOSED) {
    // The gateway said no for good: the token is too old, or its player is shut out.
    say('reconnecting', 'Connecting anew …');
    setTimeout(resume, jittered(2000));
  } else if (!heard && openedAt && Date.now() - openedAt < 3000) {
    say('waiting', 'All places are taken just now; yours is asked for again and again.');
  } else {
    say('reconnecting', 'The connection broke; it comes back by itself …');
  }
}

// resume goes on as whoever this browser is, or lets somebody join.
async function resume() {
  const me = await patiently('GET', '/me', null, later => say('waiting', `Just a moment: ${later.why}.`));
  if (me.status === 200) {
    $('name').value = me.name;
    join(me.name); // which gives a fresh token, and lets in who plays already
  } else {
    say('new', 'Not connected');
    $('game').hidden = true;
    $('join').hidden = false;
  }
}

// refresh fetches the full state, as a resync asks for. The EventSource has taken
// the resync's position already, so this has to go on until it succeeds.
async function refresh(after) {
  if (refreshing) return;
  refreshing = true;
  await pause(after || 0);
  const me = await patiently('GET', '/me', null, () => {});
  const board = await patiently('GET', '/leaderboard', null, () => {});
  refreshing = false;
  if (me.status === 200) learn(me);
  if (board.status === 200 && board.version >= (known.board?.version ?? 0)) known.board = board;
  draw();
}

// learn takes what is newer than what is known: events and a fetch may cross.
function learn(news) {
  if (news.challenge && news.challenge.challenge >= (known.challenge?.challenge ?? 0)) known.challenge = news.challenge;
  if ((news.solved ?? -1) >= known.solved) {
    known.solved = news.solved;
    known.total = news.total;
    known.rank = news.rank ?? known.rank;
  }
  if (news.drops) {
    const each = new Map([...news.drops, ...known.drops].map(d => [d.challenge, d]));
    known.drops = [...each.values()].sort((a, b) => b.challenge - a.challenge).slice(0, shownDrops);
  }
  draw();
}

// --- playing ---

// cell names a place as a spreadsheet does.
function cell(index, side) {
  let column = '';
  for (let n = index % side + 1; n > 0; n = Math.floor((n - 1) / 26)) column = String.fromCharCode(65 + (n - 1) % 26) + column;
  return column + (Math.floor(index / side) + 1);
}

async function solve(index) {
  const {challenge, side} = known.challenge;
  const answer = cell(index, side);
  $('said').textContent = `${answer} …`;
  const told = later => { $('said').textContent = `${later.why}; sending it again …`; };
  const result = await patiently('POST', '/solve', {challenge, answer}, told);
  if (result.right) $('said').textContent = `${answer} is right: ${result.points} points`;
  else if (result.status === 200) $('said').textContent = `There is nothing at ${answer}.`;
  else $('said').textContent = result.why;
  if (result.status === 409 || $('state').dataset.state !== 'live') refresh();
}

// --- showing ---

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    text($('events'), known.events);
    text($('total'), known.total);
    drawBoard();
    drawDrops();
    drawMap();
  });
}

function text(element, value) {
  if (element.textContent !== String(value)) element.textContent = value;
}

// lines gives a parent that many children, made by make.
function lines(parent, count, make) {
  while (parent.children.length < count) parent.append(make());
  while (parent.children.length > count) parent.lastChild.remove();
  return parent.children;
}

function drawBoard() {
  if (!known.board) return;
  const {top, players} = known.board;
  const rows = lines($('board'), top.length, () => {
    const row = document.createElement('tr');
    row.append(...['td', 'td', 'td'].map(name => document.createElement(name)));
    return row;
  });
  top.forEach((line, i) => {
    text(rows[i].children[0], i + 1);
    text(rows[i].children[1], line.name);
    text(rows[i].children[2], line.points);
    rows[i].classList.toggle('me', line.player === known.player);
    if (line.player === known.player) known.rank = i + 1;
  });
  text($('players'), players);
  text($('rank'), known.rank || '–');
}

function drawDrops() {
  const items = lines($('drops'), known.drops.length, () => document.createElement('li'));
  known.drops.forEach((drop, i) => text(items[i], `${drop.item}: ${drop.points} points`));
}

function drawMap() {
  if (!known.challenge) return;
  const {side, map} = known.challenge;
  const cells = lines($('map'), side * side, () => Object.assign(document.createElement('button'), {type: 'button'}));
  if ($('map').dataset.side !== String(side)) {
    $('map').dataset.side = side;
    $('map').style.gridTemplateColumns = `repeat(${side}, 1fr)`;
    [...cells].forEach((c, i) => c.setAttribute('aria-label', cell(i, side)));
  }
  for (let i = 0; i < map.length; i++) {
    if (cells[i].dataset.land === map[i]) continue;
    cells[i].dataset.land = map[i];
    cells[i].textContent = map[i] === 'X' ? '✕' : map[i];
  }
}

// --- the beginning ---

$('join').addEventListener('submit', e => {
  e.preventDefault();
  $('notice').textContent = '';
  $('join').hidden = true;
  say('connecting', 'Joining …');
  join($('name').value);
});
$('map').addEventListener('click', e => {
  const index = [...$('map').children].indexOf(e.target);
  if (index >= 0) solve(index);
});
resume();
