// Plays episodes with policy/policy.onnx, for ever, and draws them.
//
// For tests: ?start=0,0,0,0 begins the first episode there, ?report=PATH plays that one as fast as it can, sends what
// happened to PATH, and stops.

import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";
import { LARGEST_POSITION, LONGEST_EPISODE, POLE_LENGTH, hasEnded, nextState, startState } from "./cartpole.js";

// one thread needs no cross-origin isolation, so that any web server will do
ort.env.wasm.numThreads = 1;

const parameters = new URLSearchParams(location.search);
const report = parameters.get("report");
const canvas = document.querySelector("canvas");
const context = canvas.getContext("2d");
const before = [];

async function makePolicy() {
  const session = await ort.InferenceSession.create("policy/policy.onnx");
  const description = await (await fetch("policy/policy.json")).json();
  let carried = {}; // the recurrent state, where there is one
  return async (observation, isFirst) => {
    const inputs = {};
    for (const { name, shape, dtype } of description.inputs) {
      const sizes = shape.map((size) => (size === "batch" ? 1 : size));
      const length = sizes.reduce((product, size) => product * size, 1);
      if (name === "observation") inputs[name] = new ort.Tensor(dtype, Float32Array.from(observation), sizes);
      else if (name === "episode_start") inputs[name] = new ort.Tensor("bool", [isFirst], sizes);
      else inputs[name] = carried[name] ?? new ort.Tensor(dtype, new Float32Array(length), sizes);
    }
    const found = await session.run(inputs);
    carried = Object.fromEntries(Object.entries(description.recurrent_state).map(([name, after]) => [name, found[after]]));
    return found.action.data[0];
  };
}

async function playEpisode(policy, state, afterStep) {
  const observations = [];
  const actions = [];
  while (actions.length < LONGEST_EPISODE && !hasEnded(state)) {
    observations.push(state);
    actions.push(await policy(state, actions.length === 0));
    state = nextState(state, actions.at(-1));
    await afterStep(state, actions.length);
  }
  return { return: actions.length, actions, observations };
}

function draw([position, , angle], steps) {
  const { width, height } = canvas;
  const scale = width / (2 * LARGEST_POSITION);
  const [x, y] = [width / 2 + position * scale, height - 60];
  context.clearRect(0, 0, width, height);
  context.fillStyle = "#2b4a6f";
  context.fillRect(x - 60, y, 120, 60);
  context.lineWidth = 18;
  context.lineCap = "round";
  context.strokeStyle = "#c07a3e";
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + POLE_LENGTH * scale * Math.sin(angle), y - POLE_LENGTH * scale * Math.cos(angle));
  context.stroke();
  document.querySelector("#return").value = steps;
}

const nextFrame = () => new Promise(requestAnimationFrame);

async function playForEver(policy) {
  let state = firstState();
  for (;;) {
    const episode = await playEpisode(policy, state, async (next, steps) => {
      draw(next, steps);
      await nextFrame();
    });
    before.push(episode.return);
    document.querySelector("#before").value = before.slice(-8).join(", ");
    state = startState();
  }
}

function firstState() {
  return parameters.has("start") ? parameters.get("start").split(",").map(Number) : startState();
}

async function send(content) {
  await fetch(report, { method: "POST", body: JSON.stringify(content) });
}

try {
  const policy = await makePolicy();
  document.querySelector("#message").textContent = "";
  if (report === null) {
    await playForEver(policy);
  } else {
    const episode = await playEpisode(policy, firstState(), async (state, steps) => draw(state, steps));
    await send(episode);
  }
} catch (error) {
  const message = document.querySelector("#message");
  message.className = "failed";
  message.textContent = `The policy cannot be played.\n${error}`;
  if (report !== null) await send({ error: String(error.stack ?? error) });
}
