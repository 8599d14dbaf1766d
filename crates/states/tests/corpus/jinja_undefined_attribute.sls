{{ pillar.web.nothing }}: test.nop
