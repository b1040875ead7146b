// What the programs of Node share: how they are called, and the POST that a timer or schedule makes.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
export const require = createRequire(process.env.PEER_NODE + '/');
export const connectionString = process.env.PEER_STORE;
export const [command, ...given] = process.argv.slice(2);
export const keepSeconds = 60;
const { Agent } = require('undici');

// `queue=concurrency` of each queue.
export const queues = () => given.map((each) => each.split('=')).map(([queue, number]) => [queue, +number]);

export const poster = (connections) => {
  const agent = new Agent({ connections });
  return async (url, n, headers = {}) => {
    const { origin, pathname } = new URL(url);
    const { statusCode, body } = await agent.request({
      origin, path: pathname, method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify({ n }),
    });
    await body.text();
    if (statusCode !== 200) throw new Error(`status ${statusCode}`);
  };
};

// Lists of timers, one a line of the standard input: {queue, n, at, url}.
export async function* batches() {
  for await (const line of createInterface({ input: process.stdin })) yield JSON.parse(line);
}

export const onTerm = (stop) => process.on('SIGTERM', async () => { await stop(); process.exit(0); });
