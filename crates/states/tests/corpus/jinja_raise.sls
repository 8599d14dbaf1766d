one: test.nop
{{ raise('stop here') }}
