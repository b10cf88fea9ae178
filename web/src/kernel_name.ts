// Short names of kernels, as llmprof's pages of text have them (src/report/kernel_name.cc): the function, and of a function
// that applies an operation to elements, which one.

const wrappers = new Set([
  'gpu_kernel_impl_nocast',
  'gpu_kernel_impl',
  'BinaryFunctor',
  'UnaryFunctor',
  'AUnaryFunctor',
  'BUnaryFunctor',
  'ReduceOp',
  'func_wrapper_t',
  'kernel',
  'OpaqueType',
  'TensorIterator',
  'opmath_gpu_kernel',
]);
const names_operation = (word: string): boolean => !wrappers.has(word) && /Functor|_kernel|Ops|_cuda|_out/.test(word);
const last_component = (name: string): string => name.slice(name.lastIndexOf('::') + (name.includes('::') ? 2 : 1));

function end_of_name(text: string): number {
  const anonymous = '(anonymous namespace)';
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === '<') return i;
    if (text[i] !== '(') continue;
    if (!text.startsWith(anonymous, i)) return i;
    i += anonymous.length - 1;
  }
  return text.length;
}

/** What stands in the brackets that open at `start`, or all that is left of a name that was cut. */
function template_arguments(text: string, start: number): string {
  if (text[start] !== '<') return '';
  let depth = 0;
  for (let i = start; i < text.length; ++i) {
    if (text[i] === '<') ++depth;
    if (text[i] === '>' && text[i - 1] !== '-' && --depth === 0) return text.slice(start + 1, i);
  }
  return text.slice(start + 1);
}

const kLongest = 4096; // names beyond are nobody's functions

export function short_kernel_name(name: string): string {
  if (name.length > kLongest || /^Mem(cpy|set)/.test(name)) return name;
  const text = name.replace(/^(void |__global__ |static )+/, '');
  const end = end_of_name(text);
  if (end === text.length) return text.startsWith('at::') ? last_component(text) : text;
  const base = last_component(text.slice(0, end));
  if (base === '') return name;
  // CUTLASS entry points are named by their only argument.
  const entry_point = base === 'Kernel' || base === 'Kernel2' || base === 'device_kernel';
  for (const match of template_arguments(text, end).matchAll(/([A-Za-z_$][\w$]*)(::)?/g)) {
    const word = match[1] as string;
    if (match[2]) continue;
    if (entry_point) return word;
    if (names_operation(word)) return `${base}<${word}>`;
  }
  return base;
}
