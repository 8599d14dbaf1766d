{{ pillar['web']['host'] }}: test.nop
{{ salt['pillar.get']('web:port') }}p: test.nop
{{ salt['pillar.get']('web:none', 'fallback') }}: test.nop
{{ salt.pillar.get('word') }}: test.nop
{{ pillar.get('none', 'default') }}: test.nop
{{ salt['config.get']('number') }}n: test.nop
