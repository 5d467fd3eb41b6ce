"""Six words that a party reads out by phone, so that others know whether its key reached them as it was sent.

Of 2,048 words, six are 66 bits. They depend on one party's name and key alone. A hash of all keys together would need
twelve words: whoever forwards the lines may choose keys on both sides of a call, and finds two lists with the same 66
bits after 2^33 tries. For the words of one honest key they need 2^66, each of which costs a slow hash (PBKDF2).

The words are of the EFF's long list for passphrases, https://www.eff.org/dice, by the Electronic Frontier Foundation,
CC BY 3.0 US. Of words with 4 to 7 letters, 2,048 are left such that no two begin with the same four letters, are one
letter apart, or, by the CMU Pronouncing Dictionary, sound alike or are one sound apart.
"""

import hashlib

_N_WORDS = 6
_WORD_BITS = 11
_TRIES_COST = 1 << 17
"""Repetitions of the hash: about 0.05 s."""
_LIST = """\
abacus abdomen abide ability ablaze able abreast abridge abroad absence absolve absurd accent acetone aching acid
acorn acquire acre acrobat action actress acts acutely aerosol afar affix afford aflame afoot afraid aged ageless
agent aghast agony agreed ahead ahoy alarm album alfalfa algebra alias alibi aliens alike almanac almost aloft aloha
alone aloof alright alto alumni amaze amber ambush amends amiable amigo amiss ammonia amnesty among amount amply
amulet amused anagram anatomy anchovy ancient android anemia anew anger angled angrily angular animal ankle annex
annuity another antacid anthem antics antler antsy anvil anybody anyhow anymore anyone anytime anyway aorta apostle
appear apple approve april aptly aqua area argue armband arming armoire armrest army aroma arose array arrive ascend
ashamed ashes ashy askew aspect aspire astound astride astute atlas atom atrium attach attest attire audio august
author autism avatar avenge average aviator await awaken aware awhile awkward awning awoke axis baboon backup bacon
badge badly bagel bagful baggy bagpipe baked balance balcony bamboo banana banjo banking banner banshee barbed barista
barley barman barn barrel basis basket batboy bats battery bazooka blabber blade blah blaming blank blast blazer bleak
blemish bless blimp blinks blitz blog blooper blurb blush boat bobbing bobcat bobsled body bogged boil bolster bonding
boned bonfire bonnet bonsai bonus book booth boozy borax boring borough boss botany bottom bounce bovine boxcar boxer
breath breeze brewery brick bridged bright brisket brittle broaden broiler broken bronze broom brunch bubble budding
budget buffalo bulb bundle bungee bunt busboy busily busload buzz cabana cabbage caboose cactus cadet cadmium cage
cahoots calcium caliber calm caloric camera camper canal cancel candy canine cannon canola canteen capable capital
capsize caption caramel carbon carded caress cargo caring carload carpool cascade cash casino catalog catchy caterer
catfish catlike catnap cattle catwalk caucus causing cavalry caviar cedar celery celtic cement census certify chafe
chair chalice chamber change chaos chapter charm chatty cheddar cheese chef cherub chewer chill chirpy choice chomp
chosen chubby chug chunk churn chute cinch cinema citadel citizen citric city civil claim clammy clang clapper clarify
clasp claw clean clench clerk clever clicker client climate clinic clip clobber cloning closure clothes cloud clubbed
clump clunky clutch coach coaster cobalt cobbler cobweb coconut coerce coexist cola collage colony comfort comic
common company comrade concert condone confirm conical conjure consent control convene coping copy coral cork corny
correct corset cortex cosmos cost cottage country cover cradle crafty crane craving crazy create credit creed creole
crested crevice crewman crib cricket crier crimson crispy critter croak crop cross crouch crowbar crucial crudely
cruelty crummy crunchy crust crux crying cryptic crystal cube cubicle cuddle culture cupcake cupid curable curfew
curled cursor curtly curve cushy cusp custard cycle cymbal dagger daily dainty dance dangle dares darling dart data
dating dawn daycare daylong daytime deacon dealer debate debit debrief debug decade decent decibel deck decline decoy
deduce deed deeply defense defiant deflate defraud deftly defy degree deity delay delta deluge demise demote denial
density dentist depict deploy deport depress depth deputy derby derived deserve desktop despair destiny detail detest
detract devalue device devotee diagram dial diary dictate dilute dimly dimmed dimple dingo dining diocese dioxide
diploma dipped disarm disband discard disdain dish dislike dismiss disown display disrupt distant ditto divided dizzy
doable dodge dollop dolphin domain donated donor donut doodle doorman dorsal dosage dose dotted drained drapery
drastic draw dreamt drench dress dribble drift driller driven drizzly drone drool drum dubbed duchess ducking dugout
dumping dupe duplex during dust dutiful duty dwarf dwelled dwindle dynamic each earful early earmark earring earshot
easily eatable eaten ebony echo eclipse ecology economy edge edging editor effects effort eggnog egotism eject elated
elbow eldest eleven elite elixir elope elude elusive elves email embark emblem embody emerald empathy emperor empower
empty enable enamel enclose encode encrust ended endless endorse energy engaged engine engross engulf enhance enrage
enrich enroll ensnare ensure entail entire entrap entwine envious envy enzyme epic episode equal equity erased errand
error erupt esquire essay essence estate eternal ethanol ethics evacuee evade evasion even evict evident evoke evolve
exact exalted example excess exclude excuse exert exes exhaust exhume exile exit exodus expand expel expire explain
expose express extent extinct extras fabric faceted facial factor faculty fade fading falcon fall falsify family
fanatic fancy fanfare fanning fasting faucet favored feast federal fedora feisty feline fence ferment ferris festive
fetal fetch fever fiber fiction fiddle fifth figment figure film filter finale finite flaccid flagman flail flaky
flanked flap flaring flask flatly fled fleshy flier fling float flock floral foam fondly footage fossil foster founder
foyer fragile frame frantic fraying freely frenzy fresh fretful friday frill fringe frisbee front frosty froth frown
frozen fruit gains gala gallery galore game gaming gander gangly garage garden garlic garment garnet garter geek
generic genre gents geology gerbil gesture getaway getting giant giblet gift giggle gills gimmick given gizmo glacial
gladly glamour glare glass glazing gleeful glider glimpse glisten glitch gloomy glory glove glowing glucose glue
gluten goal goggles goliath gondola gong good gooey gopher gossip gothic gotten gown grab graded grafted granny grape
grasp gratify gravity green grime grinch gristle grit groggy groove ground growl grudge gruffly grumble gulf gummy
guru gush gusto gutless guts guzzler habitat hacked haiku half halogen halved hamlet hammock hamster handed hangup
hanky happy harbor hardy harmful harness harpist harsh harvest hassle hasty hatchet haunt hazard headed heave hefty
helium helmet helper hemlock henna herald hermit heroics herself hexagon hubcap hula human humble hummus humped hungry
hunter hurdle hurling hurray hurt husband hybrid hydrant hyphen icing icon idiom idly ignore iguana image imitate
immerse impale impeach impish implant impose improve impulse iodine irate isotope issue italics ivory jacket jailer
janitor january jargon jasmine java jawed jazz jelly jersey jiffy jigsaw jingle jinx jitters jockey jogger john
joining jolt jovial joyous joyride judge judo juggle jugular juice jujitsu jukebox july jumbo jump junior jurist juror
justly karate karma kebab keenly keep kennel kept kick kiln kimono kinetic kinship kissing kite kitten kiwi knee kooky
kosher krypton kudos kung labored ladder ladies ladle ladybug lagged lagoon lake landing lantern lapdog lapel lapping
laptop large lasso latch laundry lavish lazily lazy left legal legend legible legroom legume legwork lemon lend length
leotard letdown letter level liberty library life lifter likely lilac lily limb limes limit limping linked linseed
lion liquid list litmus little livable lived living lizard lucid luckily lullaby lumber lunar lure lushly luxury
lyrics macaw machine magenta magical magnify maimed majesty mama mammal manager mandate mango manhole manila mankind
manmade manned mantis manual many marbled march margin marine married marshy mashed masses mastiff matador math matrix
maximum maybe mayday mobile mobster mocha modify module moisten mold mollusk monday monitor monsoon monthly moody
moonlit morale mortify mosaic mossy motion motor motto mounted mourner mouse movable move moving much mule mummify
museum music musky muster mutate mutiny mutual myself mystify nail nanny napkin narrow native nature navy nearby
neatly nebula nectar negate nemesis neon nephew nest neuron nibble nifty nimbly ninja ninth nuclear nugget nullify
numbing numeral nursery nutmeg nutty nylon object obliged oblong oboe obscure obtain obtuse obvious occupy ocelot
octane october ogle okay omega ominous omit onboard ongoing onion online only onset onshore onstage onto onyx oops
ooze opacity open operate oppose osmosis other ought outage outbid outcast outer outfit outgrow outlet output outsell
outward overact oxford oxidant oxygen oyster pacify paddle padlock pagan paging pajamas palace paltry panama pancake
panda panic panther papaya paper paprika parade parcel parish parka parlor parole parrot parsley party passage pasta
patient patrol payable payback payee payroll pecan pectin pelican pelt pelvis penalty pencil pendant pension perch
perfume perjury pesky peso pester petite petri petted petunia phantom phobia phoenix phony photo placard plant plastic
plating player plaza pledge plenty pliable plod plug plunder plural plywood poem pointy poise poking polar polio polka
polygon poncho pond popcorn pope popular porous portion posh possum postal powdery power powwow prance preachy precise
predict prefix prelude premium prepay presume pretty prevent prewar primary print prison private prize problem process
produce program prong proofs props prorate proton proud proved prowler proxy prune psychic public pucker pueblo pull
pulse puma pumice punch pungent pupil puppy purely purity purple pursuit pusher putdown puzzle pyramid python quack
quail quaking quality quantum quartet query quicken quintet quit quiver rabid race racing radar radio raffle ragweed
raider railcar raisin rally ramble ramp ramrod ranch random ranged ransack ranting rarity rascal ravage raven ravine
reactor reapply reason rebel rebirth reboot rebuild recall recede recite reclaim record reenact referee refill reflex
refocus refrain refuse regain reggae regime regress regular rehab rehire reissue rejoin relax release relic reload
rely remake remedy remnant remold rename renewal rented reoccur reopen reorder repair repent replace repose reprint
reps reptile require resale rescuer reset reshape residue resort respect result rethink retinal retool retreat return
reunion reveal revise revolt rewind rework rewrite ribbon riches rickety ricotta ride riding rifling rigging rigid
rigor rinse riot ripple risk risotto rival roaming roast robe robust rocket roman rosy rotunda roundup routine royal
rubber ruby ruckus ruined rummage rumor rundown runny runway rupture rural sacred saddled sadness safari safely
saffron saga sagging said saint salad salon salt salute salvage sample sandal santa sapling sarcasm sardine sassy
satisfy savanna saved savior scale scant scarf scenic scheme scholar science scoff scone scoop scorch scouts scrap
screen script scroll scruffy scuba scuttle second secret secular sedate segment seismic seldom self seltzer seminar
senator senior sepia series sermon serpent service sesame setback setup seventh shack shadow shaft shaky shampoo
shanty shaping sharper sheath shelve shield shimmy shine ship shorts shove showy shrimp shrug shudder shuffle sibling
sierra siesta silent silica silk silver simply sincere singer sinuous siren sister sitcom sixfold sixth sizable size
sizing skater skeptic sketch skewed skiing skilled skimmer skinny skirt skyline skyward slab slacks slander slashed
slather sleep slept sliced sliding slinky sliver slogan sloppy slot small smartly smasher smirk smith smog smoky
smolder smooth smother smugly snagged snaking snap snare snazzy sneeze snide sniff snippet snort snowman snuggle speak
specks speller spent sphere sphinx spider spiffy spill spiny spiral splashy spleen splice splurge spoils spoken
sponsor spoon spore spotty spout spray spring spruce sputter squad squeeze squint stable stadium staff stage stamp
stand stark static steed stem stereo stick stifle stimuli stingy stipend stony stool stopped storage stowing straw
strep strike strobe strum stubbed stucco student stuffy stumble stung stupor sturdy stylus subdued sublet subpar
subside subtly suburb subway subzero suction sudden suds suffice sugar suggest sulfur sultry supply supreme surfer
surging surname surpass surreal survey sushi suspect swagger swan swarm sweat swifter swirl switch swoosh symptom
synapse synergy syrup system tabby tables tackle taco tactful tadpole tainted talcum tamer tank tantrum tapered taps
target tarmac tarnish tartly taste tattoo tavern that theater theme thermal thesis thicken thigh think thirty thorn
thrash thread thrive throat thud tiara tibia tidal tidbit tidings tiger tighten tilt timid tinker tinsel tiny tipoff
tipper tiring track trading traffic tragedy trapeze travel tray treat tremor trend trial tribune tricky trident
trilogy trinity tripod triumph trivial trodden trophy trouble trowel trunks trustee truth tubular tuition tulip
turbine turf turkey turmoil turtle tusk tutor tweak twelve twenty twice twiddle twig twins twisty tycoon tyke ultra
umpire unaware unbend uncanny uncivil uncover uncut undated undergo undoing undress uneasy unequal uneven unfair
unfold unglue unhappy unheard unhinge unholy unicorn unify unison unit unkempt unkind unknown unless unloved unlucky
unmade unmixed unnamed unnerve unpack unplug unquote unreal unruly unsafe unseen unstuck untaxed until untrue unusual
unwary unwed unwound unzip upbeat update upfront upgrade uphill uphold upload upon upright uproar upscale upside
upstage upswing uptake uptown upward urban urgency urology usable usage used usual utensil utility utmost utopia
vacant vaguely valid value vanish various varsity varying vastly veal vegan velcro velvet vendor venue verdict verify
version vertigo very vessel veteran veto viable vibes victory video viewer village vintage violin viper virtual visa
viscous visible vitally vividly vixen vocally voicing void volley voltage volumes voting voucher vowel voyage wages
wagon walk walnut walrus waltz wannabe wanted washer wasp water waving wham wheat whoever whoopee widen widget width
wilder willed wincing wing winner wipe wiry wisdom wispy wistful wobble wolf word worrier woven wrinkle wronged yard
yeah yelling yelp yippee yodel yoga yogurt yonder yoyo zealous zebra zero zipping zips zodiac zombie zone zoning
zoology zoom
"""
_WORDS = _LIST.split()


def spoken_words(name: str, key: str) -> str:
    """Returns the six words of a party's key.

    Args:
      name: of the party; empty for settings.
      key: its public key, or a digest, 64 hex digits.
    """
    raw = hashlib.pbkdf2_hmac("sha256", bytes.fromhex(key), f"dapple: spoken words of {name}".encode(), _TRIES_COST)
    number = int.from_bytes(raw, "big")
    return " ".join(_WORDS[number >> _WORD_BITS * place & len(_WORDS) - 1] for place in range(_N_WORDS))
