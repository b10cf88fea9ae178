// `llmprof serve` as a process of its own, and requests that say exactly what a test wants them to say.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { request } from 'node:http';

/** Starts it on a free port and waits for its address. */
export async function start(binary, env, ...args) {
  const child = spawn(binary, ['serve', '--port', '0', ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  let err = '';
  child.stderr.on('data', (bytes) => (err += bytes));
  const ended = once(child, 'exit');
  await new Promise((resolve, reject) => {
    child.stdout.on('data', (bytes) => {
      out += bytes;
      if (out.includes('\n')) resolve();
    });
    child.on('exit', (code) => reject(new Error(`llmprof serve ended with ${code}: ${err}`)));
  });
  const url = new URL(out.trim());
  return {
    url: url.href,
    origin: url.origin,
    port: Number(url.port),
    pid: child.pid,
    said: () => err,
    /** Ctrl-C; the exit code. */
    async stop(signal = 'SIGINT') {
      child.kill(signal);
      const [code] = await ended;
      return code;
    },
  };
}

/** One request; headers as they are given, Host too. */
export function ask(port, path, { method = 'GET', headers = {}, body = '' } = {}) {
  return new Promise((resolve, reject) => {
    const sent = request(
      { host: '127.0.0.1', port, path, method, headers: { Host: `127.0.0.1:${port}`, ...headers }, agent: false },
      (answer) => {
        const parts = [];
        answer.on('data', (part) => parts.push(part));
        answer.on('end', () =>
          resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts).toString() }),
        );
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });
}
