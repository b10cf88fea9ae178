// esbuild gathers imported style sheets into the page's one <style>.
declare module '*.css';
