// The page "Try it": photos, videos and the camera of this device, seen by the run's own model. Nothing is sent anywhere;
// where the model does not run in the browser, the page says that photos are sent to its server, and does so.

import {Detector} from "./detector.js";
import {drawSeen} from "./boxes.js";
import {ServerDetector} from "./server.js";

// Canvases of phones hold no more than 16 million pixels.
const MOST_PIXELS = 16e6;
// Frames that the shown speed is of.
const MEASURED_FRAMES = 20;

const part = (name) => document.querySelector(`#try [data-part="${name}"]`);
const picture = document.createElement("canvas");
const pixels = picture.getContext("2d", {willReadFrequently: true});

const shown = part("picture");
const say = (text) => (part("said").textContent = text);

let detector;
let seen = [];
let least = 1;
// What is being watched; another choice ends it.
let watching = 0;

/** Take a photo or a frame into `picture`, upright, smaller where it is too large for a canvas. */
function take(source, width, height) {
  const scale = Math.min(1, Math.sqrt(MOST_PIXELS / (width * height)));
  const [across, down] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  if (picture.width !== across || picture.height !== down) [picture.width, picture.height] = [across, down];
  // What is transparent lies on white, as in the shards.
  pixels.fillStyle = "#fff";
  pixels.fillRect(0, 0, across, down);
  pixels.drawImage(source, 0, 0, across, down);
  return pixels.getImageData(0, 0, across, down);
}

function setLeast(score) {
  least = score;
  part("least").textContent = score.toFixed(2);
}

function draw() {
  if (shown.width !== picture.width || shown.height !== picture.height) {
    [shown.width, shown.height] = [picture.width, picture.height];
  }
  shown.hidden = false;
  const context = shown.getContext("2d");
  context.drawImage(picture, 0, 0);
  const kept = seen.filter((one) => one.score >= least);
  drawSeen(context, kept, detector.description.colours);
  part("list").replaceChildren(
    ...kept.map(({label, score, box}) => {
      const line = document.createElement("li");
      line.textContent = `${label} ${score.toFixed(2)}`;
      Object.assign(line.dataset, {label, score, box: box.join(" ")});
      return line;
    }),
  );
  shown.setAttribute("aria-label", `${kept.length} seen: ${kept.map((one) => one.label).join(", ") || "nothing"}`);
}

async function look(source, width, height, file) {
  const mine = watching;
  const image = take(source, width, height);
  const began = performance.now();
  const found = await detector.detect(image, file);
  if (mine === watching) {
    seen = found;
    draw();
  }
  return performance.now() - began;
}

function stop() {
  watching += 1;
  const video = part("video");
  for (const track of video.srcObject?.getTracks() ?? []) track.stop();
  if (video.src) URL.revokeObjectURL(video.src);
  video.srcObject = null;
  video.removeAttribute("src");
  part("stop").hidden = true;
  part("speed").textContent = "";
}

async function openPhoto(file) {
  if (detector.isAway) say(`${file.name} is sent to this server …`);
  // As the shards have it: turned by its EXIF, its colours as they are written.
  const bitmap = await createImageBitmap(file, {imageOrientation: "from-image", colorSpaceConversion: "none"});
  const took = await look(bitmap, bitmap.width, bitmap.height, file);
  say(`${file.name}: ${bitmap.width} × ${bitmap.height} px, seen in ${Math.round(took)} ms`);
  bitmap.close();
}

async function watch(video, name) {
  const mine = watching;
  part("stop").hidden = false;
  await video.play();
  say(`Watching ${name}`);
  const frames = [];
  while (mine === watching && !video.ended) {
    if (video.readyState >= HTMLMediaElement.HAVE_CURRENT_DATA) {
      const took = await look(video, video.videoWidth, video.videoHeight);
      frames.push(performance.now());
      if (frames.length > MEASURED_FRAMES) frames.shift();
      const seconds = (frames.at(-1) - frames[0]) / 1000;
      const rate = seconds ? ((frames.length - 1) / seconds).toFixed(1) : "–";
      part("speed").textContent = `${rate} frames a second, the last in ${Math.round(took)} ms`;
    }
    await new Promise(requestAnimationFrame);
  }
  if (mine === watching) {
    stop();
    say(`${name} has ended`);
  }
}

async function openVideo(file) {
  const video = part("video");
  video.src = URL.createObjectURL(file);
  await watch(video, file.name);
}

async function openCamera() {
  stop();
  const video = part("video");
  const mine = watching;
  const stream = await navigator.mediaDevices.getUserMedia({
    audio: false,
    video: {facingMode: "environment", width: {ideal: 1280}, height: {ideal: 720}},
  });
  if (mine !== watching) {
    for (const track of stream.getTracks()) track.stop();
    return;
  }
  video.srcObject = stream;
  await watch(video, "the camera");
}

/** Nothing of what was looked at before stays beside what is said of another file. */
function clear() {
  seen = [];
  shown.hidden = true;
  part("list").replaceChildren();
}

async function open(file) {
  if (!file) return;
  stop();
  clear();
  if (file.type.startsWith("video/") && detector.isAway) throw new Error("the server looks at photos only");
  await (file.type.startsWith("video/") ? openVideo(file) : openPhoto(file));
}

// Every failure is a sentence on the page.
function told(deed, what) {
  return async (...all) => {
    try {
      await deed(...all);
    } catch (error) {
      stop();
      say(`${what}: ${error.message || error.name || error}`);
    }
  };
}

function listen() {
  const choose = told(open, "This file cannot be shown");
  const area = document.getElementById("try");
  part("file").addEventListener("change", (event) => choose(event.target.files[0]));
  part("threshold").addEventListener("input", (event) => {
    setLeast(Number(event.target.value));
    if (!shown.hidden) draw();
  });
  part("stop").addEventListener("click", () => {
    stop();
    say("Stopped");
  });
  area.addEventListener("dragover", (event) => event.preventDefault());
  area.addEventListener("drop", (event) => {
    event.preventDefault();
    choose(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => event.clipboardData.files.length && choose(event.clipboardData.files[0]));
  if (detector.isAway) {
    part("camera").hidden = true;
  } else if (navigator.mediaDevices?.getUserMedia) {
    part("camera").addEventListener("click", told(openCamera, "The camera cannot be opened"));
  } else {
    part("camera").hidden = true;
    part("no-camera").hidden = false;
  }
}

/** What is said of photos before the first one can be chosen. */
function sayThatPhotosAreSent(reason) {
  const [sentence, place] = [document.createElement("strong"), document.getElementById("privacy")];
  sentence.textContent = "Your photo is sent to this server";
  const why = reason.message || reason.name || reason;
  place.replaceChildren(sentence, `, which looks at it and does not keep it: the model cannot run in this browser (${why}).`);
  place.classList.add("warning");
  part("what").textContent = "A photo";
  part("file").accept = "image/*";
}

/** The model in this browser; else by the server, if it can. */
async function load(description) {
  try {
    return await Detector.load(description);
  } catch (error) {
    const address = document.getElementById("try").dataset.server;
    if (!address) throw error;
    sayThatPhotosAreSent(error);
    return new ServerDetector(address, description);
  }
}

/** All that holds only where scripts run; without them the form that sends a photo is open, and nothing else is said. */
function showThatItRunsHere() {
  document.getElementById("privacy").hidden = false;
  document.getElementById("try").hidden = false;
  document.querySelector("details.send")?.removeAttribute("open");
}

async function start() {
  const answer = await fetch(document.getElementById("try").dataset.model);
  const description = await answer.json();
  if (!answer.ok) throw new Error(description.error);
  detector = await load(description);
  const asked = document.getElementById("try").dataset.least;
  const least = asked === undefined ? description.threshold : Number(asked);
  part("threshold").value = least;
  setLeast(least);
  listen();
  for (const control of document.querySelectorAll("#try fieldset")) control.disabled = false;
  say("Ready");
}

showThatItRunsHere();
told(start, "The model cannot run in this browser")();
