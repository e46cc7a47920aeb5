#!/bin/sh
# Bundles the SQL editor of the console with npm and esbuild. The result is checked in: installing
# deltasql builds nothing. Run this after a change of editor.js or of the versions in package.json.
set -eu
cd "$(dirname "$0")"
out=../python/deltasql/console/static
npm ci --no-audit --no-fund
npx esbuild editor.js --bundle --minify --format=iife --target=es2020 --legal-comments=none --outfile="$out/editor.js"
# All packages in the bundle have the MIT license; their notices must go with it.
{
  echo "static/editor.js is bundled from editor/editor.js (Apache-2.0) and these packages:"
  for folder in node_modules/@codemirror/* node_modules/@lezer/* node_modules/@marijn/* node_modules/crelt node_modules/style-mod node_modules/w3c-keyname; do
    [ -f "$folder/LICENSE" ] || continue
    printf '\n%s %s\n\n' "${folder#node_modules/}" "$(node -p "require('./$folder/package.json').version")"
    cat "$folder/LICENSE"
  done
} > "$out/editor.LICENSE.txt"
(cd "$out" && sha256sum editor.js) > editor.sha256
