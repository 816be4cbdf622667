// The page in a real browser against a running server: `node page.mjs BASE_URL FOLDER`, with playwright-core and a Chromium
// (CHROMIUM names another one than /usr/bin/chromium). Screenshots go to FOLDER; the exit code says whether all is well.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const [base, folder] = process.argv.slice(2);
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const faults = [];

// Runs in the page: of an answer that `window.holds`, the first events alone come, however fast the server is, so that
// nothing but the button ends it.
function holding() {
  const { fetch } = window;
  window.fetch = async (address, options) => {
    const response = await fetch(address, options);
    if (!window.holds || !options?.signal) return response;
    const [reader, decoder] = [response.body.getReader(), new TextDecoder()];
    const left = new Promise((_, reject) => options.signal.addEventListener("abort", () => reject(options.signal.reason)));
    let text = "";
    const pull = async (controller) => {
      if (/^data: .*\n\n/m.test(text)) await left;
      const { value } = await reader.read();
      text += decoder.decode(value);
      controller.enqueue(value);
    };
    return new Response(new ReadableStream({ pull }), { headers: response.headers });
  };
}

async function open(options) {
  const page = await browser.newPage(options);
  // Long enough for any machine: who waits so long hangs.
  page.setDefaultTimeout(600000);
  await page.addInitScript(holding);
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
  page.on("request", (request) => {
    const isOwn = request.url().startsWith(base) || request.url().startsWith("data:");
    if (!isOwn) faults.push(`loads ${request.url()}`);
  });
  await page.goto(`${base}/`);
  await page.waitForFunction(() => document.querySelectorAll("#model option").length > 0);
  return page;
}

async function say(page, text) {
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
}

const ended = (page) => page.waitForFunction(() => document.getElementById("stop").disabled);
const drawn = (page) => page.waitForFunction(() => document.querySelector("#plots output").textContent !== "–");

// What a screen reader is told: every control and every plot has a name.
async function checkNames(page) {
  const reader = await page.context().newCDPSession(page);
  const { nodes } = await reader.send("Accessibility.getFullAXTree");
  const roles = ["button", "textbox", "spinbutton", "combobox", "tab", "log", "figure", "tabpanel", "main", "link"];
  const shown = nodes.filter((node) => !node.ignored && roles.includes(node.role?.value));
  assert.ok(shown.length > 3);
  for (const node of shown) {
    if (node.role.value !== "main") assert.ok(node.name?.value, `a ${node.role.value} has no name`);
  }
  await reader.detach();
}

// The controls that the tab key reaches, in order.
async function reached(page, keys) {
  const found = [];
  await page.evaluate(() => document.activeElement.blur());
  for (let key = 0; key < keys; key++) {
    await page.keyboard.press("Tab");
    found.push(await page.evaluate(() => document.activeElement.id || document.activeElement.className || document.activeElement.localName));
  }
  return found;
}

// A chat with the keyboard alone.
const page = await open({ viewport: { width: 1100, height: 800 }, colorScheme: "light" });
await page.click("summary");
await page.fill("#temperature", "0");
await page.fill("#max_tokens", "60");
await checkNames(page);
await page.mouse.click(5, 795);
const stops = await reached(page, 16);
for (const id of ["skip", "tab-chat", "model", "key", "temperature", "system", "tools", "log", "prompt", "send"]) {
  assert.ok(stops.includes(id), `the tab key does not reach ${id}: ${stops}`);
}
await page.click("summary");
await say(page, "Name the capital of France.");
await ended(page);
const text = await page.textContent(".said.assistant");
assert.match(text, /Paris/);
assert.match(await page.textContent("#status"), /tokens of prompt/);
await page.screenshot({ path: `${folder}/chat-light.png` });

// Stopping.
await page.click("summary");
await page.fill("#max_tokens", "1500");
await page.click("summary");
await page.evaluate(() => (window.holds = true));
await say(page, "Tell me a very long story.");
await page.waitForFunction(() => document.querySelectorAll(".said.assistant").length === 2);
await page.click("#stop");
await ended(page);
assert.equal(await page.textContent("#status"), "Stopped");
await page.evaluate(() => (window.holds = false));

// What a model says is text, never markup.
const wicked = "# Title\n**bold** <img src=x onerror=alert(1)> `<b>`\n- one\n- [x](javascript:alert(1))\n\n7. seven\n```\n<script>alert(1)</script>\n```";
const chunk = (choice) => `data: ${JSON.stringify({ choices: [{ index: 0, ...choice }] })}\n\n`;
await page.route("**/v1/chat/completions", (route) =>
  route.fulfill({
    contentType: "text/event-stream",
    body: chunk({ delta: { reasoning_content: "<i>hm</i>" } }) + chunk({ delta: { content: wicked } }) + "data: [DONE]\n\n",
  }),
);
await say(page, "Be wicked.");
await ended(page);
await page.waitForSelector(".said.assistant:last-child h3");
const last = page.locator(".said.assistant").last();
assert.equal(await last.locator("img, script, i, b, a").count(), 0);
assert.equal(await last.locator("strong").textContent(), "bold");
assert.equal(await last.locator("pre").textContent(), "<script>alert(1)</script>");
assert.equal(await last.locator("ul li").count(), 2);
assert.equal(await last.locator("ol").getAttribute("start"), "7");
assert.match(await last.locator("details").textContent(), /<i>hm<\/i>/);
await page.unroute("**/v1/chat/completions");
await page.click("#clear");
assert.equal(await page.locator(".said").count(), 0);

// A call of a tool, and its result.
await page.click("summary");
await page.fill("#max_tokens", "80");
const tools = [{ type: "function", function: { name: "now", parameters: { type: "object", additionalProperties: false } } }];
await page.fill("#tools", JSON.stringify(tools));
await page.click("summary");
await page.route("**/v1/chat/completions", async (route) => {
  const body = JSON.parse(route.request().postData());
  const isFirst = !body.messages.some((message) => message.role === "tool");
  await route.continue({ postData: JSON.stringify({ ...body, tool_choice: isFirst ? "required" : "none", parallel_tool_calls: false }) });
});
await say(page, "What time is it?");
await page.waitForSelector(".call + form");
assert.match(await page.textContent(".call"), /^now\(\{\s*\}\)$/);
await page.screenshot({ path: `${folder}/tool.png` });
await page.fill(".said form input", "Half past nine");
await page.click(".said form button");
await ended(page);
assert.equal(await page.locator(".said.assistant").count(), 2);

// The engine.
await page.click("#tab-engine");
await drawn(page);
assert.equal(await page.locator("figure").count(), 10);
// This model has pages of one kind.
for (const [title, isShown] of [["Pages, full", true], ["Pages, window", false]]) {
  const figure = page.locator("figure", { hasText: title });
  assert.equal(await figure.isVisible(), isShown, title);
}
assert.match(await page.locator("figure", { hasText: "Pages, full" }).locator("output").textContent(), /% running, .*% cached/);
const hits = page.locator("figure", { hasText: "Prefix hits" });
assert.deepEqual(await hits.locator(".scale span").allTextContents(), ["100 %", "50 %", "0"]);
assert.deepEqual(await hits.locator(".times span").allTextContents(), ["2 minutes ago", "now"]);
await checkNames(page);
await page.screenshot({ path: `${folder}/engine-light.png` });
await page.press("#tab-engine", "ArrowLeft");
assert.ok(await page.isVisible("#prompt"));

// Dark, and on a phone.
const phone = await open({ viewport: { width: 390, height: 780 }, colorScheme: "dark", isMobile: true });
await say(phone, "Write a short list of three fruits.");
await ended(phone);
await phone.screenshot({ path: `${folder}/phone-dark.png` });
const width = await phone.evaluate(() => document.documentElement.scrollWidth);
assert.ok(width <= 390, `the page is ${width} wide`);
await phone.click("#tab-engine");
await drawn(phone);
await phone.screenshot({ path: `${folder}/engine-dark.png` });

await browser.close();
assert.deepEqual(faults, []);
console.log("the page is well");
