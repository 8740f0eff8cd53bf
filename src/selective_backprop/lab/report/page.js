const dark = matchMedia('(prefers-color-scheme: dark)');
const {plots, gallery} = JSON.parse(document.getElementById('data').textContent);
// Plotly offers by itself to send a figure to its maker's server; this page has no such button.
const config = {displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: '',
  modeBarButtons: [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]};
const LINE = 16;  // pixels between the names of two curves
const find = id => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children);
  return element;
}

function coloured(layout) {
  const css = getComputedStyle(document.documentElement);
  const of = name => css.getPropertyValue(name).trim();
  const axis = {gridcolor: of('--line'), linecolor: of('--quiet'), tickcolor: of('--quiet'),
    tickfont: {color: of('--quiet')}};
  // A finger that scrolls the page must not zoom the figure it happens to cross.
  const dragmode = matchMedia('(pointer: fine)').matches ? 'zoom' : false;
  return {dragmode, ...layout,
    font: {color: of('--ink'), family: getComputedStyle(document.body).fontFamily, size: 13},
    hoverlabel: {bgcolor: of('--paper'), bordercolor: of('--line'), font: {color: of('--ink')}},
    modebar: {color: of('--line'), activecolor: of('--quiet'), bgcolor: 'rgba(0,0,0,0)'},
    xaxis: {...layout.xaxis, ...axis}, yaxis: {...layout.yaxis, ...axis}};
}

// Names each shown curve where it ends, moved apart where ends are close.
function endNames(plot, height) {
  const {type, range} = plot.layout.yaxis;
  const share = y => ((type === 'log' ? Math.log10(y) : y) - range[0]) / (range[1] - range[0]);
  const named = trace => trace.name && trace.visible !== false && trace.meta !== 'unnamed';
  const ends = plot.data.filter(named).map(trace => {
    let last = trace.y.length - 1;
    while (last > 0 && trace.y[last] === null) last -= 1;
    return {name: trace.name, x: trace.x[last], y: share(trace.y[last])};
  }).filter(end => Number.isFinite(end.y)).sort((one, other) => one.y - other.y);
  let lowest = 0;
  for (const end of ends) lowest = (end.y = Math.max(end.y, lowest)) + LINE / height;
  let highest = 1;
  for (const end of ends.reverse()) highest = (end.y = Math.min(end.y, highest)) - LINE / height;
  return ends.map(end => ({text: end.name, x: end.x, y: end.y, xref: 'x', yref: 'paper',
    xanchor: 'left', yanchor: 'middle', xshift: 5, showarrow: false, font: {size: 12}}));
}

function draw(plot) {
  const place = find(plot.name);
  const layout = coloured(plot.layout);
  if (plot.namedEnds && layout.yaxis.range) {
    const room = place.clientWidth > 640;
    layout.annotations = room ? endNames(plot, plot.layout.height - 80) : [];
    const widest = Math.max(...layout.annotations.map(each => each.x));
    // A name needs room beside the figure as far as it does not end before the longest curve does.
    const beyond = layout.annotations.map(each =>
      16 + 7 * each.text.length - (1 - each.x / widest) * (place.clientWidth - 200));
    layout.margin = {...layout.margin, r: Math.max(10, ...beyond)};
  }
  // On a narrow screen names would lie on one another; the legend has them.
  const data = place.clientWidth > 640 ? plot.data
    : plot.data.map(trace => ({...trace, mode: trace.mode?.replace('+text', '')}));
  return Plotly.react(place, data, layout, config);
}

function redraw(plot) {
  if (!entriesOf(plot).length) return draw(plot);
  const shown = new Set(entriesOf(plot).filter(isOn).map(entry => entry.dataset.entry));
  plot.data = plot.data.map(trace => ({...trace, visible: shown.has(trace.legendgroup)}));
  return draw(plot);
}

const isOn = entry => entry.getAttribute('aria-pressed') === 'true';
const entriesOf = plot => [...document.querySelectorAll(`[data-legend="${plot.name}"]`)];

// A click switches one entry, a double click shows it alone, or everything again; an arm is
// switched in every figure that has it.
function switchEntries(plot, entry, only) {
  const own = entriesOf(plot);
  const alone = own.every(each => isOn(each) === (each === entry));
  const wanted = new Map(only
    ? own.map(each => [each.dataset.entry, alone || each === entry])
    : [[entry.dataset.entry, !isOn(entry)]]);
  for (const other of plots) {
    const meant = entriesOf(other).filter(each => wanted.has(each.dataset.entry));
    for (const each of meant) each.setAttribute('aria-pressed', wanted.get(each.dataset.entry));
    if (meant.length) redraw(other);
  }
}

function press(button) {
  for (const other of button.parentElement.querySelectorAll('button'))
    other.setAttribute('aria-pressed', other === button);
}

function choose(plot, button) {
  const {choice, scale} = button.dataset;
  if (choice) {
    const {x, y = {}, title} = plot.choices[choice];
    plot.data = plot.data.map((trace, i) => ({...trace, x: x[i], y: y[i] ?? trace.y}));
    plot.layout.xaxis = {...plot.layout.xaxis, title: {text: title}, autorange: true};
  } else {
    plot.layout.yaxis = {...plot.layout.yaxis, ...plot.scales[scale], autorange: false};
  }
  press(button);
  draw(plot);
}

function slide(plot, slider) {
  const step = plot.steps[slider.value];
  plot.data = plot.data.map((trace, i) => ({...trace, x: step.x[i]}));
  slider.nextElementSibling.textContent = `after ${step.name}`;
  draw(plot);
}

// Single examples

const classOf = number => number < 0 ? 'never seen' : gallery.classes[number] ?? String(number);
const percent = share => share === null ? '' : ` (${Math.round(100 * share)}\u00a0%)`;

function face(index, label) {
  const portrait = gallery.portraits[index] ?? {};
  if (portrait.image)
    return make('img', {src: portrait.image, alt: `example ${index}, label ${label}`});
  return make('span', {className: 'words', textContent: portrait.text ?? `example ${index}`});
}

function facts(example) {
  const wrong = example.prediction >= 0 && example.prediction !== example.label;
  const lines = [make('span', {textContent: `label ${classOf(example.label)}`})];
  if ('clean' in example)
    lines.push(make('span', {className: 'wrong', textContent: `flipped, was ${classOf(example.clean)}`}));
  lines.push(make('span', {className: wrong ? 'wrong' : '', textContent: example.prediction < 0
    ? 'never seen' : `predicted ${classOf(example.prediction)}${percent(example.confidence)}`}));
  return lines;
}

function card(run, index) {
  const example = run.examples[index];
  const alive = index in run.lives;
  const box = make(alive ? 'button' : 'div', {className: 'portrait',
    title: alive ? 'show its life below' : `example ${index}`},
    face(index, classOf(example.label)), ...facts(example),
    make('small', {textContent: `trained on ${example.selected} ×`}));
  if (alive) box.addEventListener('click', () => {
    showLife(index);
    find('life').scrollIntoView({block: 'center', behavior: 'smooth'});
  });
  return box;
}

function options(select, values, words = String) {
  const before = select.value;
  select.replaceChildren(...values.map(value => make('option', {value, textContent: words(value)})));
  if (values.map(String).includes(before)) select.value = before;
}

const shownRun = () => gallery.runs.find(run => run.arm === find('gallery-arm').value
  && String(run.seed) === find('gallery-seed').value);
const rivals = () => gallery.runs.filter(run => String(run.seed) === find('gallery-seed').value);

function showGallery() {
  options(find('gallery-seed'), gallery.runs.filter(run => run.arm === find('gallery-arm').value)
    .map(run => run.seed));
  const run = shownRun();
  find('gallery-most').replaceChildren(...run.most.map(index => card(run, index)));
  find('gallery-least').replaceChildren(...run.least.map(index => card(run, index)));
  find('gallery-note').textContent = `An example came up ${run.passes} times. ` + (run.even
    ? 'All examples were trained on equally often; shown are those of the highest and the lowest mean loss.'
    : 'Of those trained on equally often, the one of the higher mean loss counts as more.');
  listLives();
}

// Those that every arm followed come first, the hardest first.
function listLives() {
  const runs = rivals(), own = shownRun();
  const indices = [...new Set(runs.flatMap(run => Object.keys(run.lives)))];
  const loss = index => Math.max(...runs.filter(run => index in run.examples)
    .map(run => run.examples[index].loss ?? 0));
  const shared = index => runs.filter(run => index in run.lives).length;
  indices.sort((one, other) => shared(other) - shared(one) || loss(other) - loss(one));
  options(find('life-example'), indices, index => {
    const run = runs.find(each => index in each.lives);
    const label = classOf(run.examples[index].label);
    return `${index}: label ${label}, mean loss up to ${loss(index).toPrecision(2)}, `
      + (shared(index) === runs.length ? 'in every arm'
        : runs.filter(each => index in each.lives).map(each => each.arm).join(', '));
  });
  if (indices.length) showLife(find('life-example').value);
}

const measure = () => document.querySelector('[data-measure][aria-pressed="true"]').dataset.measure;
const MEASURES = {loss: 'loss', probability: 'probability of its label (%)'};

function showLife(index) {
  find('life-example').value = index;
  const runs = rivals().filter(run => index in run.lives);
  const example = runs[0].examples[index];
  find('life-face').replaceChildren(face(index, classOf(example.label)), make('p', {},
    make('strong', {textContent: `Example ${index}, label ${classOf(example.label)}. `}),
    'clean' in example ? `Its label was flipped from ${classOf(example.clean)}. ` : '',
    runs.map(run => {
      const {selected, prediction, confidence} = run.examples[index];
      return `${run.arm}: trained on ${selected} ×, last seen as ${classOf(prediction)}${percent(confidence)}`;
    }).join('; ') + '.'));
  const plot = plots.find(each => each.name === 'life');
  plot.data = runs.map(run => {
    const life = run.lives[index];
    const open = run.epochs.map((_, i) => life.selected[i] === 0);
    return {type: 'scatter', mode: 'lines+markers', name: run.arm, legendgroup: run.arm,
      x: run.epochs, y: life[measure()], connectgaps: true,
      customdata: life.selected.map(count => count === 0 ? 'scored, not trained on'
        : count === 1 ? 'trained on' : `trained on ${count} times`),
      line: {color: run.colour, dash: run.dash, width: 1.5},
      marker: {size: 9, color: run.colour, symbol: open.map(each => each ? 'circle-open' : 'circle')},
      hovertemplate: '%{fullData.name}, epoch %{x}<br>%{y}, %{customdata}<extra></extra>'};
  });
  plot.layout.yaxis = {...plot.layout.yaxis, title: {text: MEASURES[measure()]}};
  redraw(plot);
}

function start() {
  for (const plot of plots) {
    draw(plot);
    for (const entry of entriesOf(plot)) {
      entry.addEventListener('click', () => switchEntries(plot, entry, false));
      entry.addEventListener('dblclick', () => switchEntries(plot, entry, true));
    }
    for (const button of document.querySelectorAll(`[data-plot="${plot.name}"]`))
      button.addEventListener('click', () => choose(plot, button));
    for (const slider of document.querySelectorAll(`[data-steps="${plot.name}"]`))
      slider.addEventListener('input', () => slide(plot, slider));
  }
  if (gallery) {
    find('gallery-arm').addEventListener('change', showGallery);
    find('gallery-seed').addEventListener('change', showGallery);
    find('life-example').addEventListener('change', event => showLife(event.target.value));
    for (const button of document.querySelectorAll('[data-measure]'))
      button.addEventListener('click', () => {
        press(button);
        showLife(find('life-example').value);
      });
    showGallery();
  }
  dark.addEventListener('change', () => plots.forEach(draw));
  addEventListener('resize', () => plots.forEach(draw));
  document.documentElement.dataset.state = 'drawn';
}

// Plotly comes compressed, which makes this file less than half as large.
async function unpack() {
  const packed = Uint8Array.from(atob(find('plotly').textContent), char => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  document.head.append(make('script', {textContent: await new Response(stream).text()}));
}

unpack().then(start).catch(error => {
  document.documentElement.dataset.state = 'failed';
  for (const plot of document.querySelectorAll('.plot'))
    plot.textContent = 'The figures need a browser of 2023 or later; the tables do not.';
  throw error;
});
